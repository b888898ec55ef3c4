//! The reference page about conditions and Events: condition types, and the reasons of the controllers.

use etcd_operator_api::condition;

use super::events::{EVENTS, EVERY_KIND};
use super::head;
use super::reasons::{REASONS, ReasonDoc};
use super::table::{code, table};

/// Generates the page.
pub(super) fn page() -> String {
    let types = condition::ALL.map(|type_| [code(type_.as_str()), type_.meaning().to_owned()]);
    format!(
        "{}
Every kind reports conditions in `status.conditions`. A condition that does not apply to an object is absent. `lastTransitionTime` is when the status last changed, `lastUpdateTime` when any part of the condition last changed, `observedGeneration` the generation of the spec it refers to. `message` explains it with names and numbers. `status.observedGeneration` is -1 until an operator has seen the object.

## Types

{}
## Reasons

`Scaling`, `Recovering`, `Ready`, `Reconciling` and `Stalled` have the reason of `Progressing`, of a [blocker](blockers.md), or of the condition that keeps the object from being ready. kstatus, and so Flux and `helm --wait` of Helm 4, reads the last three; Argo CD reads them by [its rules](../how-to/gitops.md).

{}
## Events

The operator emits one Event per completed step. `kubectl describe` shows Events, and so does `kubectl events --for etcd/NAME` or `--for etcdbk/NAME`. An Event repeated within six minutes increases the count of the existing one.

The operator sends at most 30 Events per minute and object, including repetitions. Further Events are dropped and counted in the metric `etcd_operator_events_dropped_total`. No state is lost: conditions and `status.plan` show the current state.

{}",
        head("Conditions and Events"),
        table(&["type", "meaning when True"], &types),
        reasons_table("type", "status and meaning", &REASONS),
        reasons_table("kind", "meaning", EVENTS),
    )
}

fn reasons_table(subject_heading: &str, meaning: &str, all: &[ReasonDoc]) -> String {
    let rows: Vec<[String; 4]> = all
        .iter()
        .map(|doc| {
            let subject = if doc.subject == EVERY_KIND {
                doc.subject.to_owned()
            } else {
                code(doc.subject)
            };
            [
                subject,
                code(doc.reason),
                doc.meaning.to_owned(),
                doc.remedy.to_owned(),
            ]
        })
        .collect();
    table(&[subject_heading, "reason", meaning, "what to do"], &rows)
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::condition::FinishedReason;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_have_existing_condition_types_and_full_sentences() {
        for doc in REASONS.iter() {
            assert!(
                condition::ALL.iter().any(|known| known.as_str() == doc.subject),
                "{}",
                doc.subject
            );
            let has_status = ["True: ", "False: ", "Unknown: "]
                .iter()
                .any(|status| doc.meaning.starts_with(status));
            assert!(has_status, "{}: {}", doc.reason, doc.meaning);
        }
        for doc in REASONS.iter().chain(EVENTS) {
            assert!(doc.meaning.ends_with('.'), "{}", doc.reason);
            assert!(
                doc.remedy.is_empty() || doc.remedy.ends_with('.'),
                "{}",
                doc.reason
            );
        }
    }

    /// The string literals of a source that look like reasons: one CamelCase word. Literals in unit tests are
    /// ignored.
    fn reason_literals(source: &str) -> BTreeSet<String> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let literals = code.split('"').skip(1).step_by(2);
        let is_word = |text: &&str| {
            text.starts_with(char::is_uppercase) && text.chars().all(|c| c.is_ascii_alphabetic())
        };
        literals.filter(is_word).map(str::to_owned).collect()
    }

    /// The part of a source between two of its lines.
    fn between<'a>(source: &'a str, from: &str, to: &str) -> &'a str {
        let rest = source.split_once(from).expect("the source has that line").1;
        rest.split_once(to).map_or(rest, |(part, _)| part)
    }

    fn documented(all: &[ReasonDoc]) -> BTreeSet<String> {
        all.iter().map(|doc| doc.reason.to_owned()).collect()
    }

    fn documented_events(kind: &str) -> BTreeSet<String> {
        let of_kind = EVENTS.iter().filter(|doc| doc.subject == kind);
        of_kind.map(|doc| doc.reason.to_owned()).collect()
    }

    #[test]
    fn every_reason_of_a_controller_is_documented_and_no_other() {
        let decision = include_str!("../../../cluster-core/src/plan/decision.rs");
        let rollout = include_str!("../../../cluster-core/src/status/rollout.rs");
        let statuses = [
            include_str!("../../../backup/src/status/conditions.rs"),
            include_str!("../../../backup/src/status/former_locations.rs"),
            between(
                include_str!("../../../restore/src/plan/reason.rs"),
                "fn as_str",
                "\n}\n",
            ),
            include_str!("../../../cluster-core/src/status/conditions.rs"),
            between(rollout, "use super::", "pub fn transitions"),
            include_str!("../../../cluster-core/src/status/hibernation_exit.rs"),
            include_str!("../../../cluster-core/src/status/step_failure.rs"),
            include_str!("../../../cluster-core/src/status/backups.rs"),
            include_str!("../../../cluster-core/src/build/image.rs"),
            include_str!("../../../api/src/reference.rs"),
            include_str!("../../../api/src/refusal.rs"),
            between(
                include_str!("../../../api/src/condition.rs"),
                "fn given_up",
                "\n}",
            ),
            between(decision, "Self::Converged", "\n}\n"),
        ];
        let mut given: BTreeSet<_> = statuses
            .iter()
            .flat_map(|source| reason_literals(source))
            .collect();
        given.extend(FinishedReason::ALL.map(|reason| reason.as_str().to_owned()));
        given.extend(etcd_operator_backup::plan::Reason::ALL.map(|reason| reason.as_str().to_owned()));
        assert_eq!(given, documented(&REASONS));
    }

    /// The reason that all three controllers share.
    fn elsewhere() -> String {
        let source = include_str!("../../../runtime/src/elsewhere.rs");
        let (_, after) = source
            .split_once("pub const REASON: &str = \"")
            .expect("that line");
        after.split('"').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn every_verdict_on_a_spec_is_documented_and_no_other() {
        let mut given = reason_literals(include_str!("../../../runtime/src/report.rs"));
        // An action, not a reason.
        assert!(given.remove("Validate"));
        assert_eq!(given, documented_events(EVERY_KIND));
    }

    #[test]
    fn every_event_of_a_cluster_is_documented_and_no_other() {
        let steps = include_str!("../../../cluster/src/act.rs").split_once("fn event_reason(");
        let mut given = reason_literals(steps.expect("the source has that line").1);
        given.extend(reason_literals(include_str!(
            "../../../cluster-core/src/status/events.rs"
        )));
        let rollout = include_str!("../../../cluster-core/src/status/rollout.rs");
        given.extend(reason_literals(between(
            rollout,
            "pub fn transitions",
            "#[cfg(test)]",
        )));
        for reconcile in [
            include_str!("../../../cluster/src/reconcile.rs"),
            include_str!("../../../cluster/src/reconcile/dry_run.rs"),
            include_str!("../../../cluster/src/reconcile/image_check.rs"),
        ] {
            given.extend(reason_literals(between(
                reconcile,
                "let (reason, severity) = (",
                "Severity::Warning",
            )));
        }
        given.insert(elsewhere());
        assert_eq!(given, documented_events("EtcdCluster"));
    }

    #[test]
    fn every_event_of_a_restore_is_documented_and_no_other() {
        let sources = [
            include_str!("../../../restore/src/reconcile.rs"),
            include_str!("../../../restore/src/reconcile/create_cluster.rs"),
        ];
        let given: BTreeSet<_> = sources
            .iter()
            .flat_map(|source| reason_literals(source))
            .filter(|word| word != "Restore")
            .chain([elsewhere()])
            .collect();
        assert_eq!(given, documented_events("EtcdRestore"));
    }

    #[test]
    fn every_event_of_a_backup_is_documented_and_no_other() {
        let sources = [
            include_str!("../../../backup/src/reconcile.rs"),
            include_str!("../../../backup/src/events.rs"),
        ];
        let actions = ["Backup", "Prune", "Erase"].map(str::to_owned);
        let given: BTreeSet<_> = sources
            .into_iter()
            .flat_map(reason_literals)
            .filter(|word| !actions.contains(word))
            .chain([elsewhere()])
            .collect();
        assert_eq!(given, documented_events("EtcdBackup"));
    }
}
