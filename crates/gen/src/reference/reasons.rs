//! What controllers say in one word, what it means, and what there is to do about it: the reasons of conditions. A test
//! holds the list to what stands in the controllers.

mod restores;

use std::sync::LazyLock;

use restores::RESTORES;

/// A word that a controller says.
#[derive(Clone)]
pub(super) struct Said {
    /// The condition it stands on, or the kind it is an Event of.
    pub(super) of: &'static str,
    /// The word.
    pub(super) word: &'static str,
    /// What it means, for conditions after the status they have then.
    pub(super) meaning: &'static str,
    /// What a person does then; empty where there is nothing to do.
    pub(super) remedy: &'static str,
}

pub(super) const fn said(
    of: &'static str,
    word: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> Said {
    Said {
        of,
        word,
        meaning,
        remedy,
    }
}

/// The reasons of conditions.
pub(super) static REASONS: LazyLock<Vec<Said>> = LazyLock::new(|| [OF_ALL, RESTORES].concat());

const OF_ALL: &[Said] = &[
    said(
        "Accepted",
        "Valid",
        "True: the spec is valid and everything it asks for exists in this operator.",
        "",
    ),
    said(
        "Accepted",
        "Invalid",
        "False: a field has a value that cannot be used; the message names it and what is allowed.",
        "Correct the field; until then nothing changes.",
    ),
    said(
        "Accepted",
        "NotImplemented",
        "False: a field asks for what this version of the operator cannot do.",
        "Leave the field out; until then nothing changes.",
    ),
    said(
        "Accepted",
        "NotServed",
        "Unknown: the object is another installation's business.",
        "The message says how to change that.",
    ),
    said(
        "Available",
        "MembersUnreachable",
        "Unknown: the operator reaches no member; they may serve all the same.",
        "See the condition Progressing.",
    ),
    said(
        "Available",
        "QuorumServes",
        "True: a majority of the voters answers and is well.",
        "",
    ),
    said(
        "Available",
        "NoQuorum",
        "False: too few voters answer, or nobody can be asked.",
        "Look at Progressing, which says what it waits for, and at the pods.",
    ),
    said(
        "Available",
        "NotFormed",
        "False: the cluster has not come into being yet.",
        "Look at Progressing, which says what it waits for.",
    ),
    said(
        "Degraded",
        "MembersUnreachable",
        "Unknown: the operator reaches no member; they may serve all the same.",
        "See the condition Progressing.",
    ),
    said(
        "Degraded",
        "AllWell",
        "False: as many voters as are asked for, and all are well.",
        "",
    ),
    said(
        "Degraded",
        "MembersMissing",
        "True: fewer voters are well than there should be.",
        "Usually nothing: members come back or are replaced. If it stays, look at Progressing and at `status.memberStatus`.",
    ),
    said(
        "QuorumAtRisk",
        "MembersUnreachable",
        "Unknown: the operator reaches no member; they may serve all the same.",
        "See the condition Progressing.",
    ),
    said(
        "QuorumAtRisk",
        "SomeToSpare",
        "False: a voter may fail and clients still write.",
        "",
    ),
    said(
        "QuorumAtRisk",
        "NoRedundancy",
        "False: all is well with one or two voters, of which none may ever fail.",
        "Nothing is wrong. For a cluster that bears a failure set `spec.size` to 3 or more.",
    ),
    said(
        "QuorumAtRisk",
        "NoneToSpare",
        "True: one more failure stops writes.",
        "Take no node and no pod of this cluster away now.",
    ),
    said(
        "QuorumLost",
        "QuorumLost",
        "True: a majority of voters does not answer, and nothing can be decided.",
        "Bring pods and nodes back: members with their data come back by themselves. The operator replaces nobody now, as it could only guess what was written. If most volumes are gone for good, restore a backup, step by step as docs/restores.md has it.",
    ),
    said(
        "QuorumLost",
        "Waking",
        "False: members are started after a sleep (`spec.size` was 0), and have not had time to answer.",
        "",
    ),
    said(
        "DataLost",
        "DataLost",
        "True: no member has its data any more.",
        "The message says which volumes were found empty. Bring volumes back, restore a backup (docs/restores.md), or make the cluster anew.",
    ),
    said(
        "NameConflict",
        "NoConflict",
        "False: every name is free or this cluster's.",
        "",
    ),
    said(
        "NameConflict",
        "NameTaken",
        "True: an object that the operator needs exists and is somebody else's; it is not touched.",
        "Remove or rename what the message names.",
    ),
    said(
        "Applied",
        "AllTaken",
        "True: the API server takes again what is asked of volumes and pods that are there.",
        "",
    ),
    said(
        "Applied",
        "Refused",
        "False: the API server refuses to have something made or changed. Members that have formed a cluster are looked after all the same, but while a restore goes on.",
        "The message says which object and why: correct the spec, the StorageClass, the quota or the admission rule, or give the operator the right that is missing ([rbac.md](rbac.md)).",
    ),
    said(
        "Progressing",
        "Converged",
        "False: as asked for, nothing to do.",
        "",
    ),
    said(
        "Progressing",
        "Bootstrapping",
        "True: the cluster comes into being.",
        "",
    ),
    said(
        "Progressing",
        "Scaling",
        "True: members come or go, one at a time.",
        "",
    ),
    said("Progressing", "Recovering", "True: a member is replaced.", ""),
    said(
        "Progressing",
        "Waiting",
        "False: it waits for something that comes by itself, such as a pod that starts; the message says for what.",
        "If it does not come, look at the pod that the message names.",
    ),
    said(
        "Progressing",
        "Blocked",
        "False: the next step is not safe, or needs a person's word; the message says why.",
        "Do what the message says.",
    ),
    said(
        "Progressing",
        "MembersUnreachable",
        "False: pods run and the operator reaches none of them, or they tell nothing to whoever is no user of etcd.",
        "Look at the network between the operator and the pods: NetworkPolicies, DNS, certificates. If somebody has enabled authentication in etcd: `etcdctl auth disable`.",
    ),
    said(
        "Progressing",
        "QuorumLost",
        "False: see the condition QuorumLost.",
        "",
    ),
    said(
        "Progressing",
        "DataLost",
        "False: see the condition DataLost.",
        "",
    ),
    said(
        "Progressing",
        "Hibernated",
        "False: `spec.size` is 0; there is no pod, and volumes are kept.",
        "",
    ),
    said(
        "Progressing",
        "Paused",
        "False: `spec.paused` is set, the operator observes and changes nothing.",
        "",
    ),
    said(
        "Progressing",
        "Invalid",
        "False: the spec is refused; members that run are looked at, and nothing is done.",
        "Correct what the condition Accepted names.",
    ),
    said(
        "Progressing",
        "Suspended",
        "False: `spec.suspend` is set, no new backup starts.",
        "",
    ),
    said(
        "Progressing",
        "NoOperatorImage",
        "False: the operator does not know its own image, which members run from.",
        "Set `--operator-image`; the chart does it.",
    ),
    said(
        "Progressing",
        "DefinitionsOutdated",
        "False: the definition of EtcdCluster is of an older version and drops `status.plan`, so that no step is taken.",
        "Apply the definitions of this version: upgrade the Helm release that they belong to, or `kubectl apply --server-side --kustomize config/crd`.",
    ),
    said(
        "Progressing",
        "BackingUp",
        "True: a Job makes a backup, on its own or before a restore; the message names it, and why its pod has not started where that is so.",
        "If the pod does not start, look at it: its image, its node, `spec.job`.",
    ),
    said(
        "Progressing",
        "Pruning",
        "True: a Job deletes backups that are no longer kept.",
        "",
    ),
    said(
        "Progressing",
        "Erasing",
        "True: the EtcdBackup was deleted with `spec.deletionPolicy: Delete`, and a Job deletes what it stored.",
        "If it fails, the message says why. To give the stored backups up, set `spec.deletionPolicy: Retain`.",
    ),
    said(
        "Progressing",
        "Queued",
        "False: a backup is due, and as many Jobs run as the operator runs at once.",
        "Nothing: it starts in its turn, however long that takes. `--max-backup-jobs` says how many run at once.",
    ),
    said(
        "Progressing",
        "WaitsForCluster",
        "False: a backup is due, and the EtcdCluster is not there, has not formed, or has no member.",
        "Bring the cluster up, or correct `spec.etcdCluster`.",
    ),
    said(
        "Progressing",
        "Scheduled",
        "False: nothing is due; the message says when the next one is.",
        "",
    ),
    said(
        "Progressing",
        "Done",
        "False: the backup that was asked for is made.",
        "For another one, set the annotation `etcd.database.coreos.com/backup-now` to a new value.",
    ),
    said(
        "Progressing",
        "LastRunFailed",
        "False: the last backup failed; `status.Reason` says why and names the field.",
        "Correct what it names. A single backup is tried again by itself, and at once when the spec is edited; of others the next one is made when it is due, or at once with the annotation `etcd.database.coreos.com/backup-now`.",
    ),
    said(
        "Progressing",
        "NameTaken",
        "False: a Job of the name that the next run needs exists and is somebody else's; it is not touched.",
        "Delete what the message names, or rename the EtcdBackup or EtcdRestore.",
    ),
    said(
        "BackupFresh",
        "Fresh",
        "True: the last good backup is as recent as the schedule promises; of a cluster, that of at least one EtcdBackup.",
        "",
    ),
    said(
        "BackupFresh",
        "Late",
        "False: the next good backup should be there, and is not.",
        "Look at Progressing and `status.Reason` of the EtcdBackup.",
    ),
    said(
        "BackupFresh",
        "NeverMade",
        "False: the first good backup should be there, and is not.",
        "Look at Progressing and `status.Reason` of the EtcdBackup.",
    ),
    said(
        "BackupFresh",
        "NotDueYet",
        "Unknown: there is no good backup, and the first one is not late.",
        "",
    ),
    said(
        "BackupFresh",
        "BackedUpOnce",
        "Unknown: a single backup of the cluster was made, and nothing promises another one.",
        "For more, make an EtcdBackup with a schedule.",
    ),
    said(
        "BackupFresh",
        "NotBackedUp",
        "Unknown: no backup of the cluster was ever made.",
        "Make an EtcdBackup that names the cluster, unless its data need none.",
    ),
    said(
        "BackupsElsewhere",
        "LocationChanged",
        "True: the spec names another place than before, and backups lie at the old one, which the message names. They are neither pruned nor deleted with the EtcdBackup.",
        "Delete them by hand, or name the old place again to have it done.",
    ),
    said(
        "ReferenceFound",
        "Found",
        "True: the EtcdClusters and EtcdBackups that the message names exist; Secrets are not looked up.",
        "",
    ),
    said(
        "ReferenceFound",
        "Unreadable",
        "False: something the spec refers to exists, and a field of it cannot be read.",
        "Its own condition Accepted names the field.",
    ),
    said(
        "ReferenceFound",
        "NotFound",
        "False: something the spec refers to does not exist in this namespace.",
        "Create what the message names, or correct the name.",
    ),
    said(
        "StorageEphemeral",
        "DataLivesWithPods",
        "True: the data of a member is lost with its pod, and all data with all pods.",
        "For data that outlives pods, create the cluster with `storage: {size: 8Gi}`.",
    ),
    said(
        "VersionSupported",
        "NoKnownFault",
        "True: this etcd has no fault that the operator knows of.",
        "",
    ),
    said(
        "VersionSupported",
        "BetterVersionExists",
        "False: this etcd has a fault, which the message names.",
        "Ask for a newer patch of it.",
    ),
];
