//! The page about conditions and Events: the types, and the reasons the controllers give.

use etcd_operator_api::condition;

use super::head;
use super::reasons::{REASONS, Said};
use super::table::{code, table};
use super::told::{EVENTS, EVERY_KIND};

/// The page.
pub(super) fn page() -> String {
    let types = condition::ALL.map(|type_| [code(type_.as_str()), type_.meaning().to_owned()]);
    format!(
        "{}
Every kind reports conditions in `status.conditions`. A condition that does not apply to an object is absent. `lastTransitionTime` is when the status last changed, `lastUpdateTime` when anything of the condition did, `observedGeneration` which edit of the spec it speaks of. `message` says it in a sentence, with names and numbers.

## Types

{}
## Reasons

`Scaling` and `Recovering` bear the reason of `Progressing`.

{}
## Events

Each step that changes something is told once, when it was done: `kubectl describe` shows them, and `kubectl events --for etcd/NAME` or `--for etcdbk/NAME`. What is said again within six minutes is counted by the Event that is there.

About one object at most 30 calls are made in a minute, and a repetition is a call as well. What goes beyond that is not told later either: it is counted in the metric `etcd_operator_events_dropped_total`. Nothing but words is lost, as conditions and `status.plan` tell where things stand.

{}",
        head("Conditions and Events"),
        table(&["type", "meaning when True"], &types),
        told("type", "status and meaning", &REASONS),
        told("of", "meaning", EVENTS),
    )
}

fn told(of: &str, meaning: &str, all: &[Said]) -> String {
    let rows: Vec<[String; 4]> = all
        .iter()
        .map(|said| {
            let of = if said.of == EVERY_KIND {
                said.of.to_owned()
            } else {
                code(said.of)
            };
            [
                of,
                code(said.word),
                said.meaning.to_owned(),
                said.remedy.to_owned(),
            ]
        })
        .collect();
    table(&[of, "reason", meaning, "what to do"], &rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_stand_on_types_that_exist_and_end_as_sentences() {
        for said in REASONS.iter() {
            assert!(
                condition::ALL.iter().any(|known| known.as_str() == said.of),
                "{}",
                said.of
            );
            let says_status = ["True: ", "False: ", "Unknown: "]
                .iter()
                .any(|status| said.meaning.starts_with(status));
            assert!(says_status, "{}: {}", said.word, said.meaning);
        }
        for said in REASONS.iter().chain(EVENTS) {
            assert!(said.meaning.ends_with('.'), "{}", said.word);
            assert!(
                said.remedy.is_empty() || said.remedy.ends_with('.'),
                "{}",
                said.word
            );
        }
    }

    /// The literals of a source that are one word in camel case, as reasons are; not what its tests say.
    fn words(source: &str) -> BTreeSet<String> {
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

    fn explained(all: &[Said]) -> BTreeSet<String> {
        all.iter().map(|said| said.word.to_owned()).collect()
    }

    fn explained_of(kind: &str) -> BTreeSet<String> {
        let of_kind = EVENTS.iter().filter(|said| said.of == kind);
        of_kind.map(|said| said.word.to_owned()).collect()
    }

    #[test]
    fn every_reason_that_a_controller_gives_is_explained_and_no_other() {
        let plan = include_str!("../../../cluster/src/plan.rs");
        let statuses = [
            include_str!("../../../backup/src/status/findings.rs"),
            include_str!("../../../backup/src/status/elsewhere.rs"),
            between(
                include_str!("../../../backup/src/plan/why.rs"),
                "/// The word.",
                "/// Whether something",
            ),
            between(
                include_str!("../../../restore/src/plan/reason.rs"),
                "/// The reason as in the condition.",
                "\n}\n",
            ),
            include_str!("../../../cluster/src/status/findings.rs"),
            include_str!("../../../cluster/src/status/hindered.rs"),
            include_str!("../../../cluster/src/status/backups.rs"),
            include_str!("../../../cluster/src/build/image.rs"),
            include_str!("../../../api/src/reference.rs"),
            include_str!("../../../api/src/refusal.rs"),
            between(
                include_str!("../../../api/src/condition.rs"),
                "fn given_up",
                "\n}",
            ),
            between(plan, "The word in conditions", "What a pass has to say"),
        ];
        let given: BTreeSet<_> = statuses.iter().flat_map(|source| words(source)).collect();
        assert_eq!(given, explained(&REASONS));
    }

    /// What all three controllers tell, in words of one place.
    fn elsewhere() -> String {
        let source = include_str!("../../../runtime/src/elsewhere.rs");
        let (_, after) = source
            .split_once("pub const REASON: &str = \"")
            .expect("that line");
        after.split('"').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn every_verdict_on_a_spec_is_explained_and_no_other() {
        let mut given = words(include_str!("../../../runtime/src/report.rs"));
        // What was done to find it.
        assert!(given.remove("Validate"));
        assert_eq!(given, explained_of(EVERY_KIND));
    }

    #[test]
    fn every_event_of_a_cluster_is_explained_and_no_other() {
        let steps =
            include_str!("../../../cluster/src/act.rs").split_once("A step as the reason of an Event");
        let mut given = words(steps.expect("the source has that line").1);
        given.extend(words(include_str!("../../../cluster/src/status/news.rs")));
        given.insert(elsewhere());
        assert_eq!(given, explained_of("EtcdCluster"));
    }

    #[test]
    fn every_event_of_a_restore_is_explained_and_no_other() {
        let sources = [
            include_str!("../../../restore/src/reconcile.rs"),
            include_str!("../../../restore/src/reconcile/create_cluster.rs"),
        ];
        let given: BTreeSet<_> = sources
            .iter()
            .flat_map(|source| words(source))
            .filter(|word| word != "Restore")
            .chain([elsewhere()])
            .collect();
        assert_eq!(given, explained_of("EtcdRestore"));
    }

    #[test]
    fn every_event_of_a_backup_is_explained_and_no_other() {
        let sources = [
            include_str!("../../../backup/src/reconcile.rs"),
            include_str!("../../../backup/src/news.rs"),
        ];
        let actions = ["Backup", "Prune", "Erase"].map(str::to_owned);
        let given: BTreeSet<_> = sources
            .into_iter()
            .flat_map(words)
            .filter(|word| !actions.contains(word))
            .chain([elsewhere()])
            .collect();
        assert_eq!(given, explained_of("EtcdBackup"));
    }
}
