//! Why a member's process has not reported what is on its volume, with the field of the spec that helps.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::error::TlsFault;

use super::cluster_view::ClusterView;
use super::evidence::has_served_template_at;
use crate::blocker::{Blocker, FieldHint, MemberProblem, VolumeConsent, describe_verdict};
use crate::build::{FETCH, INSTALL};
use crate::desired::{Desired, Image, Storage};
use crate::observed_state::{
    CallClass, CallFailure, Container, End, EndCause, Obstacle, Ordinal, Pod, QueryResult, StartDelay,
    Unschedulable, WaitingCause, WaitingContainer,
};

/// The blocker of a member that is waited for, because its report or its answer is missing: the cause that [`explain`]
/// finds.
pub fn member_blocker(view: &ClusterView<'_>, ordinal: Ordinal) -> Blocker {
    Blocker::member(view.observed.name(ordinal), explain(view, ordinal))
}

/// Why a voter is not healthy: no leader, too far behind, or why it does not answer. Only for a voter that is not
/// healthy: another one would be described as lagging.
pub fn describe_unhealthy(view: &ClusterView<'_>, ordinal: Ordinal) -> MemberProblem {
    match view.observed.member(ordinal).status() {
        Some(status) if status.leader.is_none() => MemberProblem::NoLeader,
        Some(status) => MemberProblem::Lagging {
            index: status.raft_index,
        },
        None => explain(view, ordinal),
    }
}

/// Why a member has not reported an empty disk: the first cause found from scheduling the pod to etcd's answer. It
/// always names one, `EtcdRuns` where etcd runs.
pub fn explain(view: &ClusterView<'_>, ordinal: Ordinal) -> MemberProblem {
    let observed_member = view.observed.member(ordinal);
    let desired = &view.observed.desired;
    let Some(pod) = &observed_member.pod else {
        return MemberProblem::NoPod {
            set: desired.name.to_string(),
        };
    };
    if let Some(cause) = &pod.unschedulable {
        let claim = unbound_claim_hint(view, ordinal).filter(|_| cause.obstacles.contains(&Obstacle::Volume));
        let hints = claim.into_iter().chain(scheduling_hints(desired, cause));
        return MemberProblem::Unschedulable {
            cause: cause.clone(),
            hints: hints.collect(),
        };
    }
    if pod.deleting.is_some() {
        return MemberProblem::PodTerminating;
    }
    if let Some(problem) = view.refused_image(ordinal) {
        return problem;
    }
    if let Some((_, report)) = view.report(ordinal, view.observed.persisted.incarnation)
        && report.verdict != Verdict::Empty
    {
        return MemberProblem::VolumeNotEmpty {
            detail: describe_verdict(&report.detail, &report.verdict),
            consent: discard_consent(view, ordinal, &report.verdict),
        };
    }
    let status = &observed_member.status;
    if pod.container == Container::Running
        && let Some(failure) = status.failure()
        && matches!(failure.class, CallClass::NoTransport | CallClass::Tls(_))
    {
        return MemberProblem::TlsFailed {
            failure: failure.clone(),
            hint: tls_hint(desired, failure.class),
        };
    }
    match (&pod.container, &observed_member.report) {
        (Container::Waiting(delay), _) => MemberProblem::NotStartedContainer {
            delay: delay.clone(),
            hint: start_hint(desired, delay),
        },
        (Container::Ended { code, line, .. }, _) => MemberProblem::ContainerEnded {
            code: *code,
            line: line.clone(),
            hint: pod.end.as_ref().and_then(|end| end_hint(desired, end)),
        },
        (Container::Running, QueryResult::NoAnswer(failure)) => no_answer(desired, pod, failure),
        (Container::Running, QueryResult::Answer(_)) if status.answer().is_none() => {
            MemberProblem::ReportMismatch
        }
        // etcd runs there: what waits in a pod is never ready.
        (Container::Running, _) => match status {
            QueryResult::NoAnswer(failure) => no_answer(desired, pod, failure),
            QueryResult::Answer(_) | QueryResult::OtherResponder => MemberProblem::EtcdRuns,
            QueryResult::NotQueried if pod.ready => MemberProblem::EtcdRuns,
            QueryResult::NotQueried => MemberProblem::NoReport,
        },
    }
}

/// A pod that runs and does not answer, with how its container ended before if that was with an error.
fn no_answer(desired: &Desired, pod: &Pod, failure: &CallFailure) -> MemberProblem {
    let end = pod.end.clone().filter(|end| end.code != 0);
    MemberProblem::NoAnswer {
        failure: failure.clone(),
        previous_end: end.map(|end| {
            let hint = end_hint(desired, &end);
            (end, hint)
        }),
    }
}

/// The Secrets whose certificates are to be checked after this failure. `None` without TLS for clients, and where the
/// failure names the Secret itself.
fn tls_hint(desired: &Desired, class: CallClass) -> Option<FieldHint> {
    let client = desired.tls.client.as_ref()?;
    let (server, operator) = (client.server.clone(), client.operator.clone());
    match class {
        CallClass::Tls(TlsFault::MemberCertificate) => {
            Some(FieldHint::ServerCertificate { server, operator })
        }
        CallClass::Tls(TlsFault::ClientCertificate) => {
            Some(FieldHint::ClientCertificate { server, operator })
        }
        CallClass::Tls(TlsFault::Handshake) => Some(FieldHint::ServerTls { server }),
        // The failure names the Secret itself.
        _ => None,
    }
}

/// The field of the spec that can be why a container ended; `None` if the cause was not recognized.
fn end_hint(desired: &Desired, end: &End) -> Option<FieldHint> {
    match end.cause {
        EndCause::OutOfMemory => {
            let resources = desired.pod.resources.as_ref();
            let limits = resources.and_then(|resources| resources.limits.as_ref());
            let limit = limits.and_then(|limits| limits.get("memory"));
            Some(FieldHint::MemoryLimit(limit.map(|limit| limit.0.clone())))
        }
        EndCause::InvalidFlags => Some(FieldHint::ExtraArgs),
        EndCause::ApiV2Data => Some(FieldHint::ApiV2Data),
        EndCause::Other => None,
    }
}

/// How the user can give up data of another cluster on a volume. Not offered for any other verdict, nor where a
/// template that never served can be why the volume looks foreign.
fn discard_consent(view: &ClusterView<'_>, ordinal: Ordinal, verdict: &Verdict) -> VolumeConsent {
    let claim = view.observed.member(ordinal).claim.as_ref();
    // Once the cluster has formed, a template with which no voter served can be why the volume looks foreign.
    let is_readable = !view.observed.persisted.has_formed() || has_served_template_at(view, ordinal);
    match claim.filter(|_| *verdict == Verdict::Foreign && is_readable) {
        Some(claim) => VolumeConsent::Discard(Some(claim.uid.clone())),
        None => VolumeConsent::None,
    }
}

/// The field that an unbound PVC comes from, as the scheduler does not say; `None` for a bound or missing PVC and for
/// ephemeral storage.
fn unbound_claim_hint(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<FieldHint> {
    let Storage::Persistent { claim: wanted, .. } = &view.observed.desired.storage else {
        return None;
    };
    let claim = view.observed.member(ordinal).claim.as_ref()?;
    if claim.volume.is_some() {
        return None;
    }
    let wanted = wanted.storage_class_name.as_ref();
    if let (Some(wanted), Some(class)) = (wanted, claim.class.as_ref())
        && wanted != class
    {
        return Some(FieldHint::ClaimOfOtherClass {
            class: class.clone(),
            wanted: wanted.clone(),
            claim: ordinal.claim(&view.observed.desired.name),
        });
    }
    Some(FieldHint::ClaimUnbound {
        class: wanted.cloned(),
        can_recreate: !view.observed.persisted.has_formed(),
    })
}

/// The set fields that keep a pod off nodes. If there is none and a taint is an obstacle, the tolerations are named, set or not.
/// `unbound_claim_hint` names the field of a volume.
fn scheduling_hints(desired: &Desired, cause: &Unschedulable) -> Vec<FieldHint> {
    let pod = &desired.pod;
    let has = |obstacle| cause.obstacles.contains(&obstacle);
    let requests = requests(desired);
    let mut hints = Vec::new();
    if has(Obstacle::Resources) && !requests.is_empty() {
        hints.push(FieldHint::Resources(requests));
    }
    if has(Obstacle::NodeAffinity) && !pod.node_selector.is_empty() {
        hints.push(FieldHint::NodeSelector);
    }
    if has(Obstacle::NodeAffinity) && pod.affinity.is_some() {
        hints.push(FieldHint::Affinity);
    }
    if has(Obstacle::AntiAffinity) && pod.one_per_node {
        hints.push(FieldHint::AntiAffinity);
    }
    if has(Obstacle::TopologySpread) && pod.spread.is_some() {
        hints.push(FieldHint::TopologySpread);
    }
    if hints.is_empty() && has(Obstacle::Taint) {
        hints.push(FieldHint::Tolerations);
    }
    hints
}

/// The requests of each pod. Kubernetes takes a limit for a request where there is none.
fn requests(desired: &Desired) -> Vec<(String, String)> {
    let Some(resources) = &desired.pod.resources else {
        return Vec::new();
    };
    let mut requests = resources.limits.clone().unwrap_or_default();
    requests.extend(resources.requests.clone().unwrap_or_default());
    let requests = requests.into_iter();
    requests
        .map(|(resource, quantity)| (resource, quantity.0))
        .collect()
}

/// The field of the spec or the Secrets that can be why a container is not started; `None` where no field helps. For a
/// pod without a node, `scheduling_hints` names the fields.
fn start_hint(desired: &Desired, delay: &StartDelay) -> Option<FieldHint> {
    match delay {
        // The kubelet waits for Secrets that a pod mounts without saying so in its status.
        StartDelay::NodePreparing { .. } => {
            let tls = &desired.tls;
            let server = tls.client.as_ref().map(|client| &client.server);
            let mounted: Vec<String> = tls.peer.iter().chain(server).cloned().collect();
            (!mounted.is_empty()).then_some(FieldHint::TlsSecrets(mounted))
        }
        StartDelay::Waiting(WaitingContainer {
            init_container,
            cause: WaitingCause::ImagePull,
            ..
        }) => Some(match (init_container.as_deref(), &desired.image) {
            (Some(INSTALL | FETCH), _) => FieldHint::OperatorImage,
            (Some(_), _) => FieldHint::PodPatch,
            (None, Image::Whole { .. }) => FieldHint::EtcdImage("spec.image"),
            (None, Image::Tagged { .. }) => FieldHint::EtcdImage("spec.repository and spec.version"),
        }),
        StartDelay::Waiting(WaitingContainer {
            init_container: None,
            cause: WaitingCause::MissingReference,
            ..
        }) if !desired.pod.env.is_empty() => Some(FieldHint::EtcdEnv),
        StartDelay::NotScheduled | StartDelay::Waiting(_) => None,
    }
}
