//! Certificates that one side does not accept are told with their Secrets, and nothing is done because of them.

use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::error::{OwnCertificateError, OwnCertificateFault, TlsFault};

use super::explanations::{condition_of, status_of};
use super::scene::{Scene, no_answer};
use super::{line, plan};
use crate::blocker::{Blocker, BlockerReason, MemberProblem};
use crate::desired::ClientTls;
use crate::observed_state::{CallClass, CallFailure, Membership, QueryResult, ServerCertificateFault};
use crate::plan::Step;

const UNKNOWN_ISSUER: &str = "TLS failed: invalid peer certificate: UnknownIssuer";

fn with_tls(mut scene: Scene) -> Scene {
    scene.observed.desired.tls.client = Some(ClientTls {
        server: "c-server".to_owned(),
        operator: "c-operator".to_owned(),
    });
    scene
}

/// The pod at a place is ready, and the operator's call fails.
fn fails(scene: &mut Scene, number: u16, class: CallClass, text: &str) {
    let observed_member = scene.at(number);
    observed_member.report = QueryResult::OtherResponder;
    observed_member.status = QueryResult::NoAnswer(CallFailure {
        class,
        text: text.to_owned(),
    });
    scene.pod_at(number).ready = true;
}

/// All members serve, and the operator reaches none of them.
fn formed() -> Scene {
    let mut scene = with_tls(Scene::formed(3));
    for number in 0..3 {
        let class = CallClass::Tls(TlsFault::MemberCertificate);
        fails(&mut scene, number, class, UNKNOWN_ISSUER);
    }
    scene.observed.membership = Membership::Unknown(vec![no_answer()]);
    scene
}

/// All three were permitted to start.
fn permitted() -> Scene {
    let mut scene = with_tls(Scene::new(3));
    let first = plan(&scene.observed);
    scene.stored(&first);
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Empty);
    }
    let next = plan(&scene.observed);
    scene.stored(&next);
    let Some(Step::Permit(permits)) = next.step else {
        panic!("{:?}", next.step);
    };
    for (number, (_, permit)) in (0..).zip(permits) {
        scene.pod_at(number).permit = Some(permit);
    }
    scene
}

fn tls_blockers(scene: &Scene) -> Vec<String> {
    let blockers = plan(&scene.observed).explanation.blockers.into_iter();
    let of_tls = blockers.filter(|blocker| blocker.reason() == BlockerReason::TlsFailed);
    of_tls.map(|blocker| blocker.to_string()).collect()
}

#[test]
fn a_call_that_fails_for_tls_is_told_with_the_verifiers_words_and_the_secrets_to_correct() {
    let server = "server-ca.crt in the Secret c-server of spec.TLS.static.member.serverSecret";
    for (class, text, wanted) in [
        (
            CallClass::Tls(TlsFault::MemberCertificate),
            UNKNOWN_ISSUER,
            "; correct server.crt in the Secret c-server of spec.TLS.static.member.serverSecret, or etcd-client-ca.crt in the Secret c-operator of spec.TLS.static.operatorSecret, which must verify it".to_owned(),
        ),
        (
            CallClass::Tls(TlsFault::ClientCertificate),
            "TLS failed: the member refuses the connection: received fatal alert: BadCertificate",
            format!("; correct etcd-client.crt in the Secret c-operator of spec.TLS.static.operatorSecret, or {server}, which must verify it"),
        ),
        (
            CallClass::Tls(TlsFault::Handshake),
            "TLS failed: received corrupt message of type InvalidContentType",
            "; see the log of the pod, and whether it runs with the Secret c-server of spec.TLS.static.member.serverSecret".to_owned(),
        ),
        (
            CallClass::NoTransport,
            "the Secret c-operator of spec.TLS.static.operatorSecret does not exist",
            String::new(),
        ),
    ] {
        let mut scene = formed();
        fails(&mut scene, 1, class, text);
        assert_eq!(
            tls_blockers(&scene)[1],
            format!("c-1 cannot be reached by TLS: {text}{wanted}")
        );
    }
}

#[test]
fn members_that_cannot_be_reached_by_tls_are_left_alone_and_a_person_is_called() {
    let scene = formed();
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "MembersUnreachable - -");
    let status = status_of(&scene);
    for (type_, wanted) in [
        (ConditionType::Available, "Unknown"),
        (ConditionType::Stalled, "True"),
    ] {
        let found = condition_of(&status, type_).expect("the condition");
        assert_eq!(
            (found.status.as_str(), found.reason.as_deref()),
            (wanted, Some("MembersUnreachable")),
            "{type_:?}"
        );
    }
    let reason = status.reason.expect("a reason");
    assert!(reason.contains(UNKNOWN_ISSUER), "{reason}");
    // The same problem is told once.
    let blocked_by = status.plan.and_then(|plan| plan.blocked_by).unwrap_or_default();
    let of_tls: Vec<_> = blocked_by.iter().filter(|text| text.contains("by TLS")).collect();
    assert!(
        of_tls.len() == 1 && of_tls[0].ends_with("(also c-1, c-2)"),
        "{blocked_by:?}"
    );
    // Members that do not answer at all are nothing to stall for.
    let mut silent = formed();
    for number in 0..3 {
        fails(&mut silent, number, CallClass::Other, "no answer");
    }
    assert_eq!(line(&silent, &plan(&silent.observed)), "MembersUnreachable - -");
    let stalled = condition_of(&status_of(&silent), ConditionType::Stalled);
    assert_eq!(stalled.expect("the condition").status, "False");
}

#[test]
fn a_cluster_that_formed_and_cannot_be_reached_by_tls_keeps_its_permits_and_says_so() {
    let mut scene = permitted();
    assert_eq!(
        line(&scene, &plan(&scene.observed)),
        "Bootstrapping Bootstrap(0,1,2) -"
    );
    for number in 0..3 {
        let class = CallClass::Tls(TlsFault::MemberCertificate);
        fails(&mut scene, number, class, UNKNOWN_ISSUER);
    }
    assert_eq!(
        line(&scene, &plan(&scene.observed)),
        "MembersUnreachable Bootstrap(0,1,2) -"
    );
    assert_eq!(tls_blockers(&scene).len(), 3);
    let status = status_of(&scene);
    let available = condition_of(&status, ConditionType::Available).expect("the condition");
    assert_eq!(
        (available.status.as_str(), available.reason.as_deref()),
        ("Unknown", Some("MembersUnreachable")),
        "they may well serve others"
    );
    assert!(
        status
            .reason
            .is_some_and(|reason| reason.contains(UNKNOWN_ISSUER))
    );
    // The first one of them may be ahead of the others.
    let mut first = permitted();
    fails(
        &mut first,
        0,
        CallClass::Tls(TlsFault::MemberCertificate),
        UNKNOWN_ISSUER,
    );
    assert_eq!(
        line(&first, &plan(&first.observed)),
        "Bootstrapping Bootstrap(0,1,2) -"
    );
    assert_eq!(tls_blockers(&first).len(), 1);
}

#[test]
fn a_cluster_that_formed_and_does_not_answer_the_operator_is_not_said_to_be_forming() {
    let mut scene = permitted();
    for number in 0..3 {
        fails(&mut scene, number, CallClass::Other, "no answer in 2s");
        scene.pod_at(number).ready = true;
    }
    scene.silent(2);
    scene.pod_at(2).ready = false;
    assert_eq!(
        line(&scene, &plan(&scene.observed)),
        "Bootstrapping Bootstrap(0,1,2) -"
    );
    scene.pod_at(2).ready = true;
    assert_eq!(
        line(&scene, &plan(&scene.observed)),
        "MembersUnreachable Bootstrap(0,1,2) -"
    );
    let status = status_of(&scene);
    let available = condition_of(&status, ConditionType::Available).expect("the condition");
    assert_eq!(
        (status.phase.as_str(), available.status.as_str()),
        ("Waiting", "Unknown")
    );
}

#[test]
fn a_ready_pod_is_never_said_to_have_not_reported() {
    let answer = Scene::formed(1).at(0).status.clone();
    for status in [
        QueryResult::NotQueried,
        QueryResult::OtherResponder,
        QueryResult::NoAnswer(CallFailure::from_text("no answer")),
        answer,
    ] {
        for report in [QueryResult::NotQueried, QueryResult::OtherResponder] {
            let mut scene = permitted();
            scene.observed.persisted.pending = None;
            let observed_member = scene.at(0);
            (observed_member.status, observed_member.report) = (status.clone(), report);
            scene.pod_at(0).ready = true;
            let blockers = plan(&scene.observed).explanation.blockers;
            let problems: Vec<_> = blockers
                .iter()
                .filter_map(|blocker| match blocker {
                    Blocker::Member { name, problem } if name == "c-0" => Some(problem),
                    _ => None,
                })
                .collect();
            assert!(!problems.is_empty(), "{blockers:?}");
            assert!(!problems.contains(&&MemberProblem::NoReport), "{blockers:?}");
        }
    }
}

#[test]
fn a_cluster_whose_members_do_not_accept_their_own_certificate_says_so_before_one_is_missing() {
    let mut scene = with_tls(Scene::formed(3));
    assert_eq!(line(&scene, &plan(&scene.observed)), "Converged - -");
    scene.observed.server_certificate = Some(ServerCertificateFault {
        secret: "c-server".to_owned(),
        error: OwnCertificateError {
            fault: OwnCertificateFault::Issuer,
            text: "invalid peer certificate: UnknownIssuer".to_owned(),
        },
    });
    assert_eq!(line(&scene, &plan(&scene.observed)), "Blocked - -");
    let status = status_of(&scene);
    let available = condition_of(&status, ConditionType::Available).expect("the condition");
    assert_eq!(available.status, "True");
    let stalled = condition_of(&status, ConditionType::Stalled).expect("the condition");
    assert_eq!(stalled.status, "True");
    let reason = status.reason.expect("a reason");
    assert!(
        reason.contains("server.crt of the Secret c-server") && reason.contains("server-ca.crt"),
        "{reason}"
    );
    // What is under way goes on.
    scene.asks_for(5);
    scene.waits(3, "p3", &Verdict::Empty);
    assert_eq!(
        line(&scene, &plan(&scene.observed)),
        "Scaling Join(3) add learner c-3"
    );
    // And who sleeps has time.
    scene.observed.desired.paused = true;
    assert!(plan(&scene.observed).explanation.blockers.is_empty());
}
