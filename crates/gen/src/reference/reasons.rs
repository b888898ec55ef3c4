//! What controllers say in one word, what it means, and what there is to do about it: the reasons of conditions and of
//! Events. A test holds the list to what stands in the controllers.

/// A word that a controller says.
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

const fn said(of: &'static str, word: &'static str, meaning: &'static str, remedy: &'static str) -> Said {
    Said {
        of,
        word,
        meaning,
        remedy,
    }
}

/// The reasons of conditions.
pub(super) const REASONS: &[Said] = &[
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
        "SomeToSpare",
        "False: a voter may fail and clients still write.",
        "",
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
        "Bring pods and nodes back: members with their data come back by themselves. The operator replaces nobody now, as it could only guess what was written.",
    ),
    said(
        "DataLost",
        "DataLost",
        "True: no member has its data any more.",
        "The message says which volumes were found empty. Bring volumes back, or make the cluster anew.",
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
        "False: pods run and the operator reaches none of them.",
        "Look at the network between the operator and the pods: NetworkPolicies, DNS, certificates.",
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
        "NotImplemented",
        "False: the object is checked and nothing more is done in this version.",
        "",
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
];
