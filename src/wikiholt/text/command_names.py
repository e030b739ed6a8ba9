"""Names of well-known programs, after which a word with a hyphen in a query is an option and excludes nothing."""

import re

_PROGRAM_NAMES = """
    7z adb addgroup adduser aireplay-ng airmon-ng ansible ansible-playbook apk apt apt-cache apt-get aptitude arp
    aspell autossh avahi-browse awk aws az b3sum badblocks base64 bash bazel bc blkid borg borgbackup brew btrfs
    buildah bunzip2 bzip2 ccache certbot chattr chgrp chmod chown chroot chsh cloc cloudflared cmake cmp conda cp
    cpio cron crontab cryptsetup csplit ctest curl dd deno df dhclient dig dirmngr dmesg dmidecode dnf docker
    docker-compose doctl dotnet dpkg dpkg-reconfigure du dumpe2fs e2fsck egrep esptool ethtool exiftool faillog
    fallocate fdisk ffmpeg ffprobe fgrep firewall-cmd flatpak fsck fstrim fuser fusermount g++ gawk gcc gcloud gdb
    getent getfacl gh git gofmt gpasswd gpg gpg2 gradle grep groupadd groupmod grub-install gsutil gunicorn gunzip
    gzip hdparm hexdump hostnamectl htop htpasswd iconv ifconfig inotifywait iostat iotop ip6tables iperf iperf3
    ipset iptables iw iwconfig java javac jekyll journalctl jq k3s kubeadm kubectl kustomize ld ldapsearch ldconfig
    ldd ln localectl logrotate losetup ls lsattr lsb_release lsblk lscpu lsof lspci lsusb ltrace lvcreate lvextend
    lxc lz4 mariadb md5sum mdadm mdconfig meson minikube mkdir mkfifo mkfs mklink mkswap mktemp modprobe
    mosquitto_pub mosquitto_sub mount.nfs mpirun mtr mv mvn mypy mysql mysqldump nc ncat netcat netplan netstat nft
    nginx ngrok nixos-rebuild nl nmap nmcli npm npx nslookup ntpdate nvm openssl openvpn opkg otool pacman pandoc
    passwd pdftotext perl pg_dump pg_restore pgrep php pip pip3 pipx pkexec pkill pm2 pnpm podman ps psql pvcreate
    pwsh pytest python python2 python3 qemu-img rclone readelf readlink redis-cli resize2fs restic rm rmdir rmmod
    robocopy rpm rsync rtorrent ruby rustc rustup scp sed semanage setfacl sftp sha1sum sha256sum shasum smartctl
    smbclient snmpwalk socat sqlite3 ss ssh ssh-add ssh-agent ssh-copy-id ssh-keygen sshd sshfs stdbuf strace stty
    su sudo supervisorctl svn swapoff swapon sysctl systemctl tar tasklist tcpdump telnet terraform tmux tox
    traceroute tshark tune2fs udevadm ufw umount uname uniq unlink unrar unxz unzip update-grub useradd userdel
    usermod uv uvicorn vagrant valgrind vgcreate vim vimdiff virsh virtualenv visudo vmstat wc wg wget whoami
    wikiholt wpa_cli xargs xcodebuild xdg-open xfs_repair xrandr xxd xz yarn youtube-dl yq yt-dlp yum zcat zfs zpool
    zsh zstd zypper
"""
PROGRAMS = frozenset(_PROGRAM_NAMES.split())
"""A hyphen anywhere after one of them begins an option."""

_WORD_NAMES = """
    at bat bundle caddy cargo cat code column comm composer cut dash date diff echo edit env expand export fd file
    find fish fold free ftp go head helm history host hostname id install ip join kill killall last less link locate
    login look mail make man more mount nano nice ninja node nohup open patch ping poetry print printf read rename
    reset rg route screen script seq service set sh shutdown sleep snap sort source split start stat strings tail
    tee test time timeout top touch tr tree truncate type ulimit vault vi vlc wait watch which who write zip
"""
WORDS = frozenset(_WORD_NAMES.split())
"""Programs that are also ordinary words. A hyphen begins an option if the name is the only word of the query so far."""

_PLAIN_WORD = re.compile(r"[^\W\d_]{2,}|\x00+")


def find_command(text: str) -> str:
    """The name of a program in this beginning of a query, if a hyphen after it begins an option; else empty.

    What is in quotation marks is given as NUL characters.
    """
    words = [word.strip("`$('\"").rpartition("/")[2].casefold() for word in text.split()]
    program = next((word for word in words if word in PROGRAMS), "")
    # Arguments such as "-k2", "." or "f" are no words.
    plain = [word for word in words if _PLAIN_WORD.fullmatch(word)]
    return program or (plain[0] if len(plain) == 1 and plain[0] in WORDS else "")
