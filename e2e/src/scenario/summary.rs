//! What is written about a run: lines as Rust's own test harness has them, JUnit, and tables that prove a group.
//! Pure: nothing is run or written here.

use std::collections::BTreeMap;
use std::time::Duration;

/// One scenario after it was played.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) time: Duration,
    /// Why it failed, and where its report is.
    pub(super) failure: Option<String>,
}

/// The line of one scenario.
pub(super) fn line(outcome: &Outcome) -> String {
    let word = if outcome.failure.is_none() { "ok" } else { "FAILED" };
    format!("test {}/{} ... {word}", outcome.group, outcome.name)
}

/// The last line.
pub(super) fn result(outcomes: &[Outcome], filtered: usize, time: Duration) -> String {
    let failed = outcomes.iter().filter(|one| one.failure.is_some()).count();
    format!(
        "test result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out; finished in \
         {:.2}s",
        if failed == 0 { "ok" } else { "FAILED" },
        outcomes.len() - failed,
        time.as_secs_f32()
    )
}

/// The run as JUnit has it.
pub(super) fn junit(outcomes: &[Outcome], seed: u64) -> String {
    let failures = outcomes.iter().filter(|one| one.failure.is_some()).count();
    let time: f32 = outcomes.iter().map(|one| one.time.as_secs_f32()).sum();
    let head = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"e2e\" tests=\"{}\" failures=\"{failures}\" \
         time=\"{time:.3}\">\n  <properties><property name=\"seed\" value=\"{seed}\"/></properties>\n",
        outcomes.len()
    );
    let cases = outcomes.iter().map(|one| {
        let head = format!(
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            escaped(&one.group),
            escaped(&one.name),
            one.time.as_secs_f32()
        );
        match &one.failure {
            None => format!("{head}/>\n"),
            Some(why) => format!(
                "{head}>\n    <failure>{}</failure>\n  </testcase>\n",
                escaped(why)
            ),
        }
    });
    std::iter::once(head)
        .chain(cases)
        .chain(std::iter::once("</testsuite>\n".to_owned()))
        .collect()
}

/// A table for every group of which all that was played passed, by group.
pub(super) fn proofs(outcomes: &[Outcome], commit: &str) -> BTreeMap<String, String> {
    let mut groups: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        groups.entry(outcome.group.clone()).or_default().push(outcome);
    }
    groups
        .into_iter()
        .filter(|(_, played)| played.iter().all(|one| one.failure.is_none()))
        .map(|(group, mut played)| {
            played.sort_by(|one, other| one.name.cmp(&other.name));
            let head = format!(
                "# {group}\n\nA full run of the group; every scenario passed.\n\n| commit | scenario | seconds |\n\
                 | --- | --- | --- |\n"
            );
            let rows = played
                .iter()
                .map(|one| format!("| {commit} | {} | {:.1} |\n", one.name, one.time.as_secs_f32()));
            let table = std::iter::once(head).chain(rows).collect();
            (group, table)
        })
        .collect()
}

fn escaped(text: &str) -> String {
    let allowed = |c: &char| !c.is_control() || ['\n', '\t'].contains(c);
    let mut safe = String::with_capacity(text.len());
    for c in text.chars().filter(allowed) {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            _ => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(group: &str, name: &str, failure: Option<&str>) -> Outcome {
        Outcome {
            group: group.to_owned(),
            name: name.to_owned(),
            time: Duration::from_millis(1500),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_group_with_a_failure_proves_nothing() {
        let outcomes = [
            outcome("bed", "b", None),
            outcome("bed", "a", None),
            outcome("disks", "c", Some("full")),
            outcome("disks", "d", None),
        ];
        let proofs = proofs(&outcomes, "abc123");
        assert_eq!(proofs.keys().collect::<Vec<_>>(), ["bed"]);
        assert!(proofs["bed"].ends_with("| abc123 | a | 1.5 |\n| abc123 | b | 1.5 |\n"));
    }

    #[test]
    fn what_a_failure_says_cannot_break_the_xml() {
        let xml = junit(&[outcome("bed", "a", Some("1 < 2 & \u{1b}[1m\"so\""))], 7);
        assert!(
            xml.contains("<failure>1 &lt; 2 &amp; [1m&quot;so&quot;</failure>"),
            "{xml}"
        );
        assert!(xml.contains("failures=\"1\""));
    }

    #[test]
    fn sums_read_like_those_of_the_usual_harness() {
        let outcomes = [outcome("bed", "a", None), outcome("bed", "b", Some("x"))];
        assert_eq!(
            result(&outcomes, 3, Duration::from_secs(2)),
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 2.00s"
        );
        assert_eq!(line(&outcomes[1]), "test bed/b ... FAILED");
    }
}
