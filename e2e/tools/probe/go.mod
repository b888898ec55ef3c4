module etcd-operator/e2e/tools/probe

go 1.26.0
