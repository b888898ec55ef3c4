//! What the controller of restores says, and what a cluster says while it is restored.

use super::{Said, said};

pub(super) const RESTORES: &[Said] = &[
    said(
        "Progressing",
        "NotImplemented",
        "False: this version of the operator cannot do it; the message says what.",
        "Do what the message says.",
    ),
    said(
        "Progressing",
        "NoCluster",
        "False: the EtcdCluster that is to be restored does not exist, cannot be read, or is being deleted.",
        "Create it, or correct `spec.etcdCluster`.",
    ),
    said(
        "Progressing",
        "AnotherRestore",
        "False: another EtcdRestore of the same EtcdCluster is under way or was there before.",
        "Wait for it, or delete it.",
    ),
    said(
        "Progressing",
        "ClusterPaused",
        "False: `spec.paused` of the EtcdCluster is set, so that nothing is done to it.",
        "Set it to false.",
    ),
    said(
        "Progressing",
        "NoBackup",
        "False: no backup is found that fits `spec.source`.",
        "The message says what was looked for. An older one is named by its full key, with `spec.backupStorageType`.",
    ),
    said(
        "Progressing",
        "Verifying",
        "True: a Job reads the backup from end to end; nothing is touched before it is known to be whole.",
        "If its pod does not start, look at it.",
    ),
    said(
        "Progressing",
        "Verified",
        "True: the backup is whole, and the EtcdCluster is asked to be restored from it; `status.plan` says what will happen.",
        "",
    ),
    said(
        "Progressing",
        "VerificationFailed",
        "False: the backup could not be read or is not whole; nothing was touched, and it is tried again.",
        "Correct what the message names; a change of the spec is acted upon at once.",
    ),
    said(
        "Progressing",
        "AuthEnabled",
        "False: the backup was taken from an etcd with authentication, which the operator cannot answer yet; nothing was touched.",
        "Restore another backup.",
    ),
    said(
        "Progressing",
        "NewerVersion",
        "False: a newer etcd wrote the backup than the one the cluster runs; nothing was touched.",
        "Set `spec.version` of the EtcdCluster as the message says.",
    ),
    said(
        "Progressing",
        "NoRoom",
        "False: the volumes of the members are too small to hold the backup beside the old data; nothing was touched.",
        "Raise `spec.storage.size` of the EtcdCluster.",
    ),
    said(
        "Progressing",
        "ClaimNotShared",
        "False: the backup lies on a volume that only one node can mount, and several members need it; nothing was touched.",
        "Copy the backup to a volume with the access mode ReadWriteMany or ReadOnlyMany, or into an object store.",
    ),
    said(
        "Progressing",
        "NotBegun",
        "False: the EtcdCluster is asked to be restored and has not begun; its own conditions say why where that lasts.",
        "",
    ),
    said(
        "Progressing",
        "ClusterGone",
        "False: after the commit the EtcdCluster was deleted, or its status lost.",
        "Look at its data, and create another EtcdRestore if they are not as they should be.",
    ),
    said(
        "Progressing",
        "Restored",
        "False: the cluster serves what the backup holds; there is nothing more to do.",
        "",
    ),
    said(
        "Progressing",
        "RolledBack",
        "False: the restore was given up before its commit, and the cluster of before is back whole.",
        "The message says why. Any change of the spec lets the operator try again.",
    ),
    said(
        "Progressing",
        "Opened",
        "True: clients are let in; the pods are made anew one by one, without what only the restore needed.",
        "",
    ),
    said(
        "Progressing",
        "RollingBack",
        "True: the cluster of before comes back; the message says why.",
        "",
    ),
    said(
        "Progressing",
        "Committed",
        "True: the restored data take the place of the old ones; from here there is only forward.",
        "",
    ),
    said(
        "Progressing",
        "Preparing",
        "True: the members fetch the backup and restore it beside their old data; the old cluster can still come back.",
        "If a member does not get on, `status.members` says why. To give up, delete the EtcdRestore: the old cluster comes back.",
    ),
    said(
        "Progressing",
        "Stopping",
        "True: the pods of before are stopped; the old cluster can still come back.",
        "If a pod does not go, look at its node.",
    ),
    said(
        "Progressing",
        "UnknownPhase",
        "False: a newer version of the operator wrote how far the restore is, and this one waits.",
        "Run the newer version.",
    ),
    said(
        "Progressing",
        "Comparing",
        "True: a Job compares what the restored members serve with the backup before clients are let in.",
        "If its pod does not start, look at it.",
    ),
    said(
        "Progressing",
        "CompareFailed",
        "True: what the restored members serve could not be compared with the backup, which is tried again.",
        "Look at what the message names.",
    ),
    said(
        "Progressing",
        "DataDiffer",
        "True: what the restored members serve is not what the backup holds, so that no client is let in.",
        "Delete this EtcdRestore to let clients in all the same, and create another one to restore again.",
    ),
    said(
        "Progressing",
        "Restoring",
        "True: the data of a backup take the place of the cluster's; the EtcdRestore of `status.restore` says how far that is.",
        "",
    ),
    said(
        "Available",
        "Restoring",
        "False: a restore is under way, and clients are sent to no member until the restored data were compared with the backup.",
        "Look at the EtcdRestore that `status.restore` names.",
    ),
];
