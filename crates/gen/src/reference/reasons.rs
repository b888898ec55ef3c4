//! Documents the reasons of conditions: what each means and what the user should do. A test compares the list
//! with the controllers.

mod restores;

use std::sync::LazyLock;

use restores::RESTORES;

/// The documentation of a reason.
#[derive(Clone)]
pub(super) struct ReasonDoc {
    /// The condition type, or for Events the kind.
    pub(super) subject: &'static str,
    /// The reason.
    pub(super) reason: &'static str,
    /// The meaning. For conditions it starts with the status.
    pub(super) meaning: &'static str,
    /// What the user should do. Empty if nothing.
    pub(super) remedy: &'static str,
}

pub(super) const fn reason(
    subject: &'static str,
    reason: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> ReasonDoc {
    ReasonDoc {
        subject,
        reason,
        meaning,
        remedy,
    }
}

/// The reasons of conditions.
pub(super) static REASONS: LazyLock<Vec<ReasonDoc>> = LazyLock::new(|| [GENERAL, RESTORES].concat());

const GENERAL: &[ReasonDoc] = &[
    reason(
        "Accepted",
        "Valid",
        "True: the spec is valid, and this operator supports everything in it.",
        "",
    ),
    reason(
        "Accepted",
        "Invalid",
        "False: a field has an invalid value. The message names the field and the allowed values.",
        "Correct the field. Until then nothing changes.",
    ),
    reason(
        "Accepted",
        "NotImplemented",
        "False: this version of the operator does not support a field of the spec.",
        "Remove the field. Until then nothing changes.",
    ),
    reason(
        "Accepted",
        "NotServed",
        "Unknown: this installation of the operator does not serve the object; another one may. `Ready`, `Reconciling`, `Stalled` and `Finished` are Unknown as well.",
        "The message says how to change that.",
    ),
    reason(
        "Available",
        "AuthenticationRequired",
        "Unknown: etcd requires authentication, and the operator has no user there. The members may still serve clients.",
        "See the condition Progressing.",
    ),
    reason(
        "Available",
        "MembersUnreachable",
        "Unknown: the operator reaches no member. The members may still serve clients.",
        "See the condition Progressing.",
    ),
    reason(
        "Available",
        "QuorumServes",
        "True: a majority of the voters responds and is healthy.",
        "",
    ),
    reason(
        "Available",
        "NoQuorum",
        "False: too few voters respond, or the operator cannot query any member.",
        "Check the condition Progressing, which says what the operator waits for, and the pods.",
    ),
    reason(
        "Available",
        "NotFormed",
        "False: the cluster has not formed yet.",
        "Check the condition Progressing, which says what the operator waits for.",
    ),
    reason(
        "Degraded",
        "AuthenticationRequired",
        "Unknown: etcd requires authentication, and the operator has no user there. The members may still serve clients.",
        "See the condition Progressing.",
    ),
    reason(
        "Degraded",
        "MembersUnreachable",
        "Unknown: the operator reaches no member. The members may still serve clients.",
        "See the condition Progressing.",
    ),
    reason(
        "Degraded",
        "AllWell",
        "False: the cluster has the desired number of voters, and all are healthy.",
        "",
    ),
    reason(
        "Degraded",
        "MembersMissing",
        "True: the cluster has fewer healthy voters than desired.",
        "Usually nothing: members recover or are replaced. If it persists, check the condition Progressing and `status.memberStatus`.",
    ),
    reason(
        "QuorumAtRisk",
        "AuthenticationRequired",
        "Unknown: etcd requires authentication, and the operator has no user there. The members may still serve clients.",
        "See the condition Progressing.",
    ),
    reason(
        "QuorumAtRisk",
        "MembersUnreachable",
        "Unknown: the operator reaches no member. The members may still serve clients.",
        "See the condition Progressing.",
    ),
    reason(
        "QuorumAtRisk",
        "SomeToSpare",
        "False: the cluster keeps quorum if one voter fails.",
        "",
    ),
    reason(
        "QuorumAtRisk",
        "NoRedundancy",
        "False: all voters are healthy, but the cluster has only one or two, and loses quorum if one fails.",
        "Nothing is wrong. To tolerate a failure, set `spec.size` to 3 or more.",
    ),
    reason(
        "QuorumAtRisk",
        "NoneToSpare",
        "True: the cluster loses quorum if one more voter fails.",
        "Do not drain nodes or delete pods of this cluster now.",
    ),
    reason(
        "RolledOut",
        "UpToDate",
        "True: every member runs the current spec.",
        "",
    ),
    reason(
        "RolledOut",
        "Pending",
        "False: the spec has changes that no member runs yet. The message names the settings and what they wait for: members that are not healthy, another operation, other clusters, or the user.",
        "Usually nothing. If the change was pending when 0.1.0 was replaced, edit the spec or set the annotation that the message names. If a member is not healthy, see the condition Progressing.",
    ),
    reason(
        "RolledOut",
        "RollingOut",
        "False: members are restarted one by one, the leader last. The message counts those that have the current pod template, and says what the next restart waits for.",
        "",
    ),
    reason(
        "RolledOut",
        "Stalled",
        "False: a restarted member makes no progress, so no other member is restarted. The message names it and what keeps it.",
        "Correct the spec or set it back: the pod is re-created at once. If the cause is elsewhere, remove it, and the rollout goes on.",
    ),
    reason(
        "RolledOut",
        "Paused",
        "False: the spec has changes that no member runs, and `spec.updates.strategy` is Paused, or `spec.paused` is set.",
        "To roll them out, set the strategy to Automatic, or `spec.paused` to false.",
    ),
    reason(
        "RolledOut",
        "Blocked",
        "False: a change of the spec cannot be rolled out, such as a lower minor version, or the API server refuses to let the next pod go, such as for a PodDisruptionBudget. The message says why.",
        "Follow the message. [All blockers](blockers.md).",
    ),
    reason(
        "RolledOut",
        "OnDelete",
        "False: the members that the message names have an earlier pod template, and `spec.updates.strategy` is OnDelete.",
        "Delete their pods one by one, and wait for `Degraded=False` in between.",
    ),
    reason(
        "Stalled",
        "StepRefused",
        "True: the API server refuses the next step. The message has its words.",
        "Correct the quota, the PodDisruptionBudget or the admission rule that the message names, or grant the operator the missing permission. The operator retries.",
    ),
    reason(
        "Progressing",
        "Pending",
        "False: all members are healthy, and the spec has changes that wait to be rolled out, or for the user.",
        "See the condition RolledOut.",
    ),
    reason(
        "Finished",
        "Unfinished",
        "False: the one-shot backup or the restore has not ended.",
        "See the condition Progressing.",
    ),
    reason(
        "Finished",
        "Retrying",
        "False: the last attempt failed, and the operator makes another one by itself.",
        "See `status.Reason`. An edit of the spec starts the attempt at once.",
    ),
    reason(
        "Finished",
        "Succeeded",
        "True: the backup is stored, or the cluster serves the restored data.",
        "",
    ),
    reason(
        "Finished",
        "Failed",
        "True: the backup or the restore failed.",
        "Correct what `status.Reason` (of a restore `status.reason`) names. An edit of the spec starts another attempt, except of a restore past its commit: create another EtcdRestore.",
    ),
    reason(
        "QuorumLost",
        "QuorumLost",
        "True: a majority of the voters does not respond, so the cluster cannot commit writes.",
        "Bring pods and nodes back: members with their data recover by themselves. The operator replaces no member without quorum, because it cannot know which writes were committed. If most volumes are lost for good, restore a backup as described in docs/restores.md.",
    ),
    reason(
        "QuorumLost",
        "Waking",
        "False: the members are starting after hibernation (`spec.size` was 0) and have not had time to respond.",
        "",
    ),
    reason(
        "DataLost",
        "DataLost",
        "True: no member has its data any more.",
        "The message names the volumes that were found empty. Bring the volumes back, restore a backup (docs/restores.md), or recreate the cluster.",
    ),
    reason(
        "NameConflict",
        "NoConflict",
        "False: all required object names are free or belong to this cluster.",
        "",
    ),
    reason(
        "NameConflict",
        "NameTaken",
        "True: an object that the operator needs exists and belongs to someone else. The operator does not change it.",
        "Delete or rename the object that the message names.",
    ),
    reason(
        "Applied",
        "AllTaken",
        "True: the API server accepts the changes to existing volumes and pods again.",
        "",
    ),
    reason(
        "Applied",
        "Refused",
        "False: the API server rejects the creation or change of an object. The operator continues to manage members of a formed cluster, except during a restore.",
        "The message names the object and the cause. Correct the spec, the StorageClass, the quota or the admission policy, or grant the missing permission ([rbac.md](rbac.md)).",
    ),
    reason(
        "Progressing",
        "Converged",
        "False: the cluster matches its spec; there is nothing to do.",
        "",
    ),
    reason(
        "Progressing",
        "Bootstrapping",
        "True: the cluster is forming.",
        "",
    ),
    reason(
        "Progressing",
        "Scaling",
        "True: members are added or removed, one at a time.",
        "",
    ),
    reason(
        "Progressing",
        "Recovering",
        "True: a member is being replaced.",
        "",
    ),
    reason(
        "Progressing",
        "RollingOut",
        "True: members are restarted one by one with a changed pod template. The message names the next one, or what it waits for.",
        "If a member does not come back, see the condition RolledOut.",
    ),
    reason(
        "Progressing",
        "Waiting",
        "False: the operator waits for something that happens without intervention, such as a starting pod. The message names it.",
        "If it does not happen, check the pod that the message names.",
    ),
    reason(
        "Progressing",
        "Blocked",
        "False: the next step is not safe, or the user must decide. The message says why.",
        "Follow the message.",
    ),
    reason(
        "Progressing",
        "MembersUnreachable",
        "False: pods run, but the operator reaches none of them.",
        "Check the network between the operator and the pods: NetworkPolicies and DNS. If TLS fails, the message names the Secrets to correct.",
    ),
    reason(
        "Progressing",
        "AuthenticationRequired",
        "False: authentication is enabled in etcd, and the operator has no user there. It changes nothing. Clients may be served all the same.",
        "To let the operator look after the cluster: `etcdctl auth disable`.",
    ),
    reason(
        "Progressing",
        "QuorumLost",
        "False: see the condition QuorumLost.",
        "",
    ),
    reason(
        "Progressing",
        "DataLost",
        "False: see the condition DataLost.",
        "",
    ),
    reason(
        "Progressing",
        "Hibernated",
        "False: `spec.size` is 0. There are no pods; the volumes are kept.",
        "",
    ),
    reason(
        "Progressing",
        "Paused",
        "False: `spec.paused` is set. The operator observes the cluster and changes nothing.",
        "",
    ),
    reason(
        "Progressing",
        "Invalid",
        "False: the spec is rejected. The operator observes running members and changes nothing.",
        "Correct the field that the condition Accepted names.",
    ),
    reason(
        "Progressing",
        "Suspended",
        "False: `spec.suspend` is set; no new backup starts.",
        "",
    ),
    reason(
        "Progressing",
        "NoOperatorImage",
        "False: the operator does not know its own image, which members need.",
        "Set `--operator-image`. The chart sets it.",
    ),
    reason(
        "Progressing",
        "DefinitionsOutdated",
        "False: the EtcdCluster CRD is of an older version and drops `status.plan`, so the operator takes no step.",
        "Apply the CRDs of this version: upgrade the Helm release that owns them, or run `kubectl apply --server-side --kustomize config/crd`.",
    ),
    reason(
        "Progressing",
        "BackingUp",
        "True: a Job makes a backup, scheduled or before a restore. The message names the Job, and why its pod has not started if so.",
        "If the pod does not start, check its image, its node and `spec.job`.",
    ),
    reason(
        "Progressing",
        "Pruning",
        "True: a Job deletes backups that exceed the retention.",
        "",
    ),
    reason(
        "Progressing",
        "Erasing",
        "True: the EtcdBackup was deleted with `spec.deletionPolicy: Delete`, and a Job deletes its stored backups.",
        "If it fails, the message says why. To keep the stored backups, set `spec.deletionPolicy: Retain`.",
    ),
    reason(
        "Progressing",
        "Queued",
        "False: a backup is due, but the maximum number of concurrent backup Jobs is running.",
        "Nothing: the backup starts when a slot is free. `--max-backup-jobs` sets the maximum.",
    ),
    reason(
        "Progressing",
        "WaitsForCluster",
        "False: a backup is due, but the EtcdCluster does not exist, is hibernated, has not formed, or has no member.",
        "Bring the cluster up, or correct `spec.etcdCluster`.",
    ),
    reason(
        "Progressing",
        "Scheduled",
        "False: no backup is due. The message says when the next one is.",
        "",
    ),
    reason(
        "Progressing",
        "Done",
        "False: the requested backup is complete.",
        "For another backup, set the annotation `etcd.database.coreos.com/backup-now` to a new value.",
    ),
    reason(
        "Progressing",
        "Retrying",
        "False: the one-shot backup failed and is retried automatically. `status.Reason` says why and names the field.",
        "Correct what it names. An edit of the spec starts the retry at once.",
    ),
    reason(
        "Progressing",
        "LastRunFailed",
        "False: the last backup failed. `status.Reason` says why and names the field. A one-shot backup failed six times and is given up.",
        "Correct what it names. The next scheduled backup is made when it is due. For a backup at once, set the annotation `etcd.database.coreos.com/backup-now` to a new value.",
    ),
    reason(
        "Progressing",
        "NameTaken",
        "False: a Job with the name of the next run exists and belongs to someone else. The operator does not change it.",
        "Delete the Job that the message names, or rename the EtcdBackup or EtcdRestore.",
    ),
    reason(
        "BackupFresh",
        "Fresh",
        "True: the last successful backup is as recent as the schedule requires. For a cluster, this holds for at least one EtcdBackup.",
        "",
    ),
    reason(
        "BackupFresh",
        "Late",
        "False: the next successful backup is overdue.",
        "Check the condition Progressing and `status.Reason` of the EtcdBackup.",
    ),
    reason(
        "BackupFresh",
        "NeverMade",
        "False: the first successful backup is overdue.",
        "Check the condition Progressing and `status.Reason` of the EtcdBackup.",
    ),
    reason(
        "BackupFresh",
        "NotDueYet",
        "Unknown: there is no successful backup, and the first one is not overdue.",
        "",
    ),
    reason(
        "BackupFresh",
        "BackedUpOnce",
        "Unknown: the cluster was backed up once, and no further backup is scheduled.",
        "For regular backups, create an EtcdBackup with a schedule.",
    ),
    reason(
        "BackupFresh",
        "NotBackedUp",
        "Unknown: the cluster was never backed up.",
        "Create an EtcdBackup that names the cluster, unless its data needs no backup.",
    ),
    reason(
        "BackupsElsewhere",
        "LocationChanged",
        "True: the spec names another location than before, and backups remain at the old one, which the message names. They are neither pruned nor deleted with the EtcdBackup.",
        "Delete them manually, or set the old location again to have the operator delete them.",
    ),
    reason(
        "ReferenceFound",
        "Found",
        "True: the EtcdClusters and EtcdBackups that the message names exist. Secrets are not checked.",
        "",
    ),
    reason(
        "ReferenceFound",
        "Unreadable",
        "False: a referenced object exists, but one of its fields cannot be read.",
        "Its own condition Accepted names the field.",
    ),
    reason(
        "ReferenceFound",
        "NotFound",
        "False: a referenced object does not exist in this namespace.",
        "Create the object that the message names, or correct the name.",
    ),
    reason(
        "StorageEphemeral",
        "DataLivesWithPods",
        "True: a member loses its data with its pod; if all pods are deleted, all data is lost.",
        "For data that outlives pods, create the cluster with `storage: {size: 8Gi}`.",
    ),
    reason(
        "VersionSupported",
        "NoKnownFault",
        "True: this etcd version has no defect known to the operator.",
        "",
    ),
    reason(
        "VersionSupported",
        "BetterVersionExists",
        "False: this etcd version has a known defect, which the message names.",
        "Set a newer patch version.",
    ),
];
