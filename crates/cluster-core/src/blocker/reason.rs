//! The reasons of blockers, as the status and metrics name them, with their documentation.

/// What ends a blocker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsBy {
    /// Waiting: the operator, Kubernetes or the member itself can end it.
    Waiting,
    /// The user has to act.
    User,
}

macro_rules! reasons {
    ($($name:ident($ends:ident): $meaning:literal, $remedy:literal;)+) => {
        /// The reason of a blocker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum BlockerReason {
            $(#[doc = $meaning] $name,)+
        }

        impl BlockerReason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The word in the status.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What ends it.
            pub fn ends_by(self) -> EndsBy {
                match self {
                    $(Self::$name => EndsBy::$ends,)+
                }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)+
                }
            }

            /// What the user should do.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)+
                }
            }
        }
    };
}

reasons! {
    Alarm(User): "etcd has raised an alarm.",
        "NOSPACE: free space or compact, defragment and disarm. CORRUPT: compare the members with `etcdctl endpoint hashkv`.";
    AuthenticationEnabled(User): "Authentication is enabled in etcd 3.4, whose members cannot run beside those of 3.5 then.",
        "Disable it with `etcdctl auth disable`, and enable it again after the upgrade.";
    AuthenticationUnknown(User): "No member of etcd 3.4 tells whether authentication is enabled, with which its members cannot run beside those of 3.5.",
        "Look at the log of the members, and at NetworkPolicies and certificates.";
    BackupNotVerified(User): "The backup that comes before another minor version failed, or takes too long.",
        "Correct the EtcdBackup that the message names and annotate it with `etcd.database.coreos.com/backup-now`, or set `spec.updates.backupFirst: Never`.";
    ClaimDeleted(User): "The PersistentVolumeClaim of a running member was deleted. Its data are lost with its pod.",
        "While the other members are healthy, delete the pod: the member gets another volume and the data from the others.";
    ContainerEnded(User): "The etcd container of a member has ended.",
        "Correct the cause that the message shows.";
    ContainerNotStarted(User): "The kubelet has not started the etcd container of a member.",
        "The message shows why, and which field helps.";
    CorruptAlarm(User): "etcd has raised the alarm CORRUPT, and the data do not show which member is wrong.",
        "Find the wrong member with `etcdctl endpoint hashkv`. Have it replaced with the annotation that the message names.";
    DataLivesWithPods(User): "Members keep their data in their pods, and one or two members in a version of etcd without learners cannot be replaced one by one.",
        "Set `spec.size` to 3 first, or set the change back.";
    EncryptionSwitched(User): "A change of the spec switches TLS on or off for members that run.",
        "Set `spec.TLS` back. Restore a backup into a new EtcdCluster with the other setting.";
    FetchContainerMissing(Waiting): "A pod was created without the container that fetches the backup.",
        "Nothing. The operator re-creates the pod.";
    FetchFailed(User): "A member cannot fetch the backup, and retrying does not help.",
        "Correct the cause in the message, or restore another backup.";
    FetchRunning(Waiting): "A member fetches the backup.",
        "Nothing, unless the message shows a failure.";
    ForeignData(User): "The volume of a member holds data of another cluster or of another member.",
        "Attach the right volume. For data of another cluster you can also consent to deleting them, with the annotation that the message names.";
    HoldsPreparedData(User): "A volume holds data that a restore has prepared and that are not in use.",
        "Restore again.";
    ImageNotUsable(User): "The new etcd image cannot be pulled, does not run, or holds another minor version than the pod template names. A Job has tried it with `etcd --version`. No member is restarted.",
        "Correct `spec.image`, `spec.repository` or `spec.version`, the pull secret or the registry: the message shows what is wrong. It is tried again at once after an edit, else within five minutes.";
    ImageVersionDiffers(User): "The image of a member holds another version of etcd than the pod template names: another minor, or a patch that keeps the members from the next version.",
        "Correct `spec.image`, `spec.repository` or `spec.version`: the pod is re-created, and its volume stays. If the image was corrected in the registry, delete the pod. No other member is restarted meanwhile.";
    InvalidFlags(User): "etcd ends at once because it does not accept a flag.",
        "Correct `spec.etcd.extraArgs`.";
    KeptVolumeRejected(User): "A volume named in the adopt annotation is not the one that was kept for this member.",
        "Attach the volume that was kept, not a copy or the volume of another member.";
    KeptVolumesDiffer(User): "The volumes named in the adopt annotation belong to different clusters or incarnations.",
        "Name only volumes of one cluster and incarnation.";
    LearnerNotPromoted(Waiting): "A learner must be promoted before the next member is added.",
        "Nothing. The operator promotes it when it has the data.";
    MemberLagging(Waiting): "A voter responds and is far behind the others.",
        "Wait. If it stays behind, look at its disk and network.";
    MemberNotStarted(Waiting): "A member was added and has not started. It must start before the next one is added.",
        "See why its pod does not start.";
    MemberUnhealthy(Waiting): "A voter does not respond, follows no leader or is behind.",
        "Repair it. If it cannot recover, delete its PersistentVolumeClaim and its pod: the operator replaces it.";
    MemberUnreachable(Waiting): "The pod of a member runs and does not answer the operator.",
        "Look at the log of the pod, and at NetworkPolicies and certificates.";
    MembershipUnknown(Waiting): "A voter did not return the membership.",
        "See the call that failed in the message.";
    NewerIncarnation(User): "A volume holds data of a newer incarnation than the status. The status may have been lost.",
        "Restore the EtcdCluster with its status, or restore a backup into a new one.";
    NoLeader(Waiting): "A voter responds and follows no leader.",
        "Repair the other voters.";
    NoQuorum(Waiting): "A voter responds, and too few others do.",
        "Repair the other voters.";
    OneImageForAllVersions(User): "The way to the version in the spec leads through other versions, and the spec names one image for all of them.",
        "Set `spec.repository` and `spec.version` in place of `spec.image`.";
    OnlyVoter(User): "The only voter cannot be removed.",
        "Increase `spec.size` first.";
    OtherClusterResponds(User): "Another etcd cluster responds at the addresses of this one.",
        "Find out which cluster uses the addresses, and stop it.";
    PermitUnused(Waiting): "A member may start and has not started.",
        "Nothing, unless it lasts. Then look at the log of its pod.";
    PodMissing(Waiting): "A member has no pod.",
        "If none comes, `kubectl describe statefulset` shows why.";
    PodNotReady(Waiting): "The pod of a member is not ready.",
        "Nothing, unless it lasts. Then look at the log of the pod.";
    PodRefused(User): "The API server would refuse the changed pods, for example because of Pod Security, an admission webhook or policy, a LimitRange, or a missing ServiceAccount or PriorityClass. No member is restarted.",
        "Correct the spec, or what refuses the pods: the message has the words of the API server, which is asked again every half minute. A policy about who creates pods must allow the ServiceAccount of the operator, which asks in a dry run.";
    PodTerminating(Waiting): "The pod of a member is being deleted.",
        "Nothing, unless it lasts. Then look at its node.";
    PodUnschedulable(User): "The scheduler finds no node for the pod of a member.",
        "The message shows what nodes lack, and which field asks for it.";
    RemovalBreaksQuorum(Waiting): "Without the member too few healthy voters would be left.",
        "Repair the other voters.";
    QuotaTooSmall(User): "The spec asks for a quota that is smaller than the largest database plus 10%.",
        "Increase `spec.etcd.quotaBackendBytes`, or compact and defragment first.";
    ReportMissing(Waiting): "The process in a pod has not reported what is on its volume.",
        "Nothing, unless it lasts. Then look at the log of the pod.";
    RestoreFailed(User): "A member cannot restore the backup, and retrying does not help.",
        "Correct the cause in the message, or restore another backup.";
    RestoreMissed(Waiting): "A member was not prepared before the restore was committed.",
        "Nothing. The operator replaces it once the others serve.";
    RestoreRunning(Waiting): "A member restores the backup, or is about to.",
        "Nothing, unless the message shows a failure.";
    RestoreStalled(User): "No member of a committed restore makes progress.",
        "Correct the cause that the other blockers show, or restore another backup.";
    RestoredClustersDiffer(User): "Members have restored different clusters from one backup.",
        "Delete the EtcdRestore and create another one.";
    ServerCertificateRejected(User): "Members do not accept the certificate of one of them, so none can join the others.",
        "Correct the Secret that the message names, as it says.";
    SettingUnknownOnTheWay(User): "A version on the way to the one in the spec does not accept a setting of the spec, for example a flag.",
        "Remove the setting, or use what the newer version has instead of it after the upgrade.";
    StopUnconfirmed(User): "An old pod may still run, because its node does not confirm that it has stopped.",
        "Repair or delete the node.";
    TemplateIncarnation(Waiting): "The pod template does not have the incarnation of the kept volumes yet.",
        "Nothing. If it lasts, see the condition Applied.";
    TemplateNotApplied(User): "The StatefulSet has not accepted the template that the next pod needs.",
        "See the condition Applied.";
    TemplateNotServed(User): "A member cannot use its volume, and no voter has served with its pod template yet. The template can be the cause.",
        "Correct the image, version, user or `spec.pod.patch`. If the volume is at fault, have the member replaced with the annotation that the message names.";
    TlsFailed(User): "The operator cannot connect to a member by TLS.",
        "Correct the certificate or the CA in the Secret that the message names.";
    TooFewVoters(Waiting): "There are fewer voters than `spec.size`, so no healthy member is removed.",
        "Nothing. The missing members join first.";
    UnknownVolume(User): "An annotation names the UID of a PersistentVolumeClaim that does not exist.",
        "Correct the annotation. It takes UIDs, not names.";
    UnmanagedMember(User): "A member of etcd has no address of this cluster and counts for its quorum.",
        "Unless you added it on purpose, remove it with `etcdctl member remove`.";
    VersionNotReachable(User): "No way leads from the versions that members run to the one in the spec, for example a lower minor version without consent, or two minor versions below.",
        "Set `spec.version` back. For a lower minor version down to 3.5, set `spec.updates.allowDowngrade` and go down one minor version at a time. Otherwise, restore a backup that was made with that version into a new EtcdCluster.";
    VolumeInUse(User): "A PersistentVolumeClaim is being deleted, and finalizers hold it.",
        "Find what uses the volume.";
    VolumeNotEmpty(User): "A volume holds data where an empty one is needed.",
        "Consent to using or deleting the data with an annotation that the message names.";
    VolumeNotRestorable(User): "A volume holds data that a restore must not touch.",
        "If the data are not needed, delete the PersistentVolumeClaim and the pod.";
    VolumeOlderThanCluster(User): "A volume is older than the EtcdCluster, so it may hold data that you need.",
        "Consent to its use with the annotation that the message names.";
    VolumeReplaced(Waiting): "Another volume is attached in the place of a member's own.",
        "Attach the right volume, or declare this one to be right with the annotation that the message names.";
    VolumeUnreadable(User): "A member cannot read its volume.",
        "Repair the volume, or have the member replaced with the annotation that the message names.";
    VotersUnhealthy(Waiting): "Too few voters are healthy to promote a learner.",
        "Repair the other voters.";
    WaitsForPermit(User): "A member waits for its permit while no voter returns the membership.",
        "Attach its own volume, or repair the other voters.";
}
