"""Names of well-known programs, after which a word with a hyphen in a query is an option and excludes nothing."""

import re

_PROGRAMS = frozenset(
    """7z adb addgroup adduser aireplay-ng airmon-ng ansible ansible-playbook apache2 apk apt apt-cache apt-get aptitude
    arp aspell autossh avahi-browse awk aws az b3sum badblocks base64 bash bazel bc blkid borg borgbackup brew btrfs
    buildah bundle bunzip2 bzip2 caddy cargo ccache certbot chattr chgrp chmod chown chroot chsh cloc cloudflared cmake
    cmp composer conda cp cpio cron crontab cryptsetup csplit ctest curl dash dd deno df dhclient diff dig dirmngr
    dmesg dmidecode dnf docker docker-compose doctl dotnet dpkg dpkg-reconfigure du dumpe2fs e2fsck esptool ethtool
    exiftool faillog fallocate fdisk ffmpeg ffprobe fgrep firewall-cmd flatpak fsck fstrim fuser fusermount g++ gawk gcc
    gcloud gdb gem getent getfacl gh git gofmt gpasswd gpg gpg2 gradle grep egrep groupadd groupmod grub-install
    gsutil gunicorn gunzip gzip hdparm helm hexdump hostnamectl htop http htpasswd hugo iconv ifconfig inotifywait iostat
    iotop ip iperf iperf3 ipset iptables ip6tables iw iwconfig java javac jekyll journalctl jq k3s kubeadm kubectl
    kustomize lame ld ldapsearch ldconfig ldd ln localectl logrotate losetup ls lsattr lsb_release lsblk lscpu lsof
    lspci lsusb ltrace lvcreate lvextend lxc lz4 mariadb md5sum mdadm mdconfig meson minikube mkdir mkfifo mkfs mklink
    mkswap mktemp modprobe mosquitto_pub mosquitto_sub mount.nfs mpirun mtr mv mvn mypy mysql mysqldump nano nc ncat
    netcat netplan netstat nft nginx ngrok nixos-rebuild nl nmap nmcli node npm npx nslookup ntpdate nvm openssl
    openvpn opkg otool pacman pandoc parted passwd pdftotext perl pg_dump pg_restore pgrep php pip pip3 pipx pkexec
    pkill pm2 pnpm podman poetry popd printf ps psql pushd pvcreate pwsh pytest python python2 python3 qemu-img rclone
    readelf readlink redis-cli restic resize2fs rm rmdir rmmod robocopy rpm rsync rtorrent ruby rustc rustup samba
    scp sed semanage setfacl sftp sha1sum sha256sum shasum smartctl smbclient snap snmpwalk socat sqlite3 ss ssh
    ssh-add ssh-agent ssh-copy-id ssh-keygen sshd sshfs stat stdbuf strace stty su sudo supervisorctl svn swapoff swapon
    sysctl syslog systemctl tail tar tasklist tcpdump tee telnet terraform tmux tox traceroute truncate tshark
    tune2fs udevadm ufw umount uname uniq unlink unrar unxz unzip update-grub useradd userdel usermod uv uvicorn vagrant
    valgrind vault vgcreate vim vimdiff virsh virtualenv visudo vmstat wc wget wikiholt wg whoami wpa_cli xargs
    xcodebuild xdg-open xfs_repair xrandr xxd xz yarn youtube-dl yq yt-dlp yum zcat zfs zip zpool zsh zstd zypper""".split()
)
"""A hyphen anywhere after one of them begins an option."""

_WORDS = frozenset(
    """at bat cat code column comm cut date echo edit env expand export fd file find fish fold free ftp go head history
    host hostname id install join kill killall last less link locate login look mail make man mount more nice ninja
    nohup open patch ping print read rename reset rg route screen script seq service set sh shutdown sleep sort source
    split start strings test time timeout top touch tr tree type ulimit vi vlc wait watch which who write""".split()
)
"""Programs that are also ordinary words. A hyphen begins an option if the name is the only word of the query so far."""

_PLAIN_WORD = re.compile(r"[^\W\d_]{2,}")


def is_after_command(text: str) -> bool:
    """Whether this beginning of a query has the name of a program, so that a hyphen after it begins an option."""
    words = [word.strip("`$('\"").rpartition("/")[2].casefold() for word in text.split()]
    if not _PROGRAMS.isdisjoint(words):
        return True
    # Arguments such as "-k2", "." or "f" are no words.
    plain = [word for word in words if _PLAIN_WORD.fullmatch(word)]
    return len(plain) == 1 and plain[0] in _WORDS
