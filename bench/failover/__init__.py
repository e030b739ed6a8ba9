"""PostgreSQL with Patroni and etcd, nodes and HAProxy on one machine, in which parts are killed and frozen."""
