//! What controllers tell in Events, in one word, what it means, and what there is to do about it. A test holds the list to
//! what stands in the controllers.

use super::reasons::{Said, said};

/// The reasons of Events, each told when it was done.
pub(super) const EVENTS: &[Said] = &[
    said(
        "EtcdCluster",
        "TakenOver",
        "Pods that wait for a permit are this leader's: what a former one may still have on its way is refused by them.",
        "",
    ),
    said(
        "EtcdCluster",
        "StartPermitted",
        "A pod may start its etcd with the data it has, or with none.",
        "",
    ),
    said("EtcdCluster", "MemberAdded", "A member was added.", ""),
    said("EtcdCluster", "MemberPromoted", "A learner became a voter.", ""),
    said(
        "EtcdCluster",
        "LeaderMoved",
        "Another member leads, as the leader is about to go.",
        "",
    ),
    said(
        "EtcdCluster",
        "MemberRemoved",
        "A member was removed: there are too many, or its data or its node are lost.",
        "",
    ),
    said(
        "EtcdCluster",
        "PodDeleted",
        "A pod was deleted, so that it starts as another member.",
        "",
    ),
    said(
        "EtcdCluster",
        "VolumeDeleted",
        "The volume of a member that is no more was deleted.",
        "",
    ),
    said(
        "EtcdCluster",
        "AlarmDisarmed",
        "The alarm of a member that was replaced was taken back, so that etcd takes writes again.",
        "",
    ),
    said(
        "EtcdCluster",
        "Blocked",
        "Warning: the next step would not be safe, or a person must decide.",
        "The message says what must change.",
    ),
    said(
        "EtcdCluster",
        "QuorumLost",
        "Warning: a majority of voters does not answer.",
        "See the condition of this name.",
    ),
    said(
        "EtcdCluster",
        "DataLost",
        "Warning: no member has its data any more.",
        "See the condition of this name.",
    ),
    said(
        "EtcdCluster",
        "NameConflict",
        "Warning: an object that the operator needs exists and is somebody else's.",
        "See the condition of this name.",
    ),
    said(
        "EtcdCluster",
        "ControlledElsewhere",
        "Another installation of the operator looks after this cluster; this one leaves it alone.",
        "Give each installation a scope of its own.",
    ),
    said("EtcdBackup", "BackupStarted", "The Job of a backup was made.", ""),
    said(
        "EtcdBackup",
        "BackupSucceeded",
        "A backup is in the store, whole and verified.",
        "",
    ),
    said(
        "EtcdBackup",
        "BackupFailed",
        "A backup was not made; nothing of it counts.",
        "The message names the field and the cause; see `LastRunFailed`.",
    ),
    said(
        "EtcdBackup",
        "BackupMissed",
        "A backup that was due was given up, as it could not start in time.",
        "The message says why. `spec.backupPolicy.startingDeadlineSeconds` says how late one may start.",
    ),
    said(
        "EtcdBackup",
        "BackupsPruned",
        "Backups that are no longer kept were deleted; the message says how many, and which could not be.",
        "",
    ),
    said(
        "EtcdBackup",
        "BackupsElsewhere",
        "The spec names another place than before, and backups stay at the old one. A warning where old ones are to be deleted.",
        "See the condition of this name.",
    ),
    said(
        "EtcdBackup",
        "PruneFailed",
        "Backups that are no longer kept could not be deleted, which is tried again after the next backup.",
        "The message names the field and the cause.",
    ),
    said(
        "EtcdBackup",
        "EraseStarted",
        "The EtcdBackup goes, and the Job was made that deletes what it stored.",
        "",
    ),
    said(
        "EtcdBackup",
        "BackupsErased",
        "What the EtcdBackup had stored is deleted, and it goes. The message says where backups are left that were stored before the spec named another place.",
        "",
    ),
    said(
        "EtcdBackup",
        "EraseFailed",
        "What the EtcdBackup had stored could not be deleted, which is tried again.",
        "The message names the field and the cause. To give the stored backups up, set `spec.deletionPolicy: Retain`.",
    ),
    said(
        "EtcdRestore",
        "RestoreWaits",
        "The restore waits for something outside; the message says for what.",
        "Do what the message says.",
    ),
    said(
        "EtcdRestore",
        "ClusterCreated",
        "The EtcdCluster was created from `spec.clusterTemplate`, and waits for its data.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreVerifies",
        "A Job reads the backup from end to end; nothing is touched.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreBacksUp",
        "A Job backs the cluster up; nothing is touched.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreStarted",
        "The pods of before are stopped; whether the old cluster can still come back is in the message.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestorePrepares",
        "The members restore beside their old data; the old cluster can still come back.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreCommitted",
        "The restored data take the place of the old ones; from here there is only forward.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreServes",
        "The restored cluster works; its data are compared with the backup before clients are let in.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreSucceeded",
        "The cluster serves what the backup holds.",
        "",
    ),
    said(
        "EtcdRestore",
        "RestoreRollsBack",
        "Warning: the restore is given up, and the cluster of before comes back.",
        "The message says why.",
    ),
    said(
        "EtcdRestore",
        "RestoreRolledBack",
        "Warning: the cluster of before is back.",
        "The message says why. Any change of the spec lets the operator try again.",
    ),
    said(
        "EtcdRestore",
        "RestoreFailed",
        "Warning: the restore failed; the condition Progressing says at what, and whether anything was touched.",
        "Correct what the message names.",
    ),
];
