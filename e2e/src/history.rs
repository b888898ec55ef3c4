//! What clients of a cluster saw, and whether a cluster that never lost, forked or reordered a write can have shown it
//! to them. Pure: `workload` gathers what is judged here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// So many faults are told in words; the rest are counted.
const TOLD: usize = 8;

/// Who connects anew for every call.
const NEWCOMER: &str = "newcomer";

/// One thing a client saw. Moments are nanoseconds on one clock.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Event {
    kind: Kind,
    client: String,
    key: String,
    value: String,
    /// What a swap replaced.
    previous: String,
    revision: i64,
    began: i64,
    ended: i64,
    error: String,
}

/// What sort of thing it was.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// A write was acknowledged.
    #[default]
    Put,
    /// A compare-and-swap was done.
    Swap,
    /// A compare-and-swap found something else.
    Lost,
    /// A write had no good answer: it may have been done or not.
    Unknown,
    /// A read was answered.
    Read,
    /// A read was not.
    Unread,
    /// The watcher was told of a write.
    Seen,
    /// The watcher was told of a deletion.
    SeenDeleted,
    /// The watcher was told that what was before is not kept.
    Compacted,
    /// The watcher never was told of the rest.
    Behind,
    /// This is there when all is over.
    There,
    /// That was all.
    End,
}

/// The events in the order in which they were written down.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

/// How much a history that is right was about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// Links of the chain among them.
    pub links: usize,
    /// Writes without a good answer.
    pub unknown: usize,
    /// Of what the watcher was told.
    pub seen: usize,
    /// Answers to somebody who connected anew for each of them.
    pub newcomers: usize,
    /// The longest time in which no write was acknowledged, in milliseconds.
    pub longest_gap: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged writes, {} of them links of a chain, are all there and in order; {} had no answer; a watcher \
             saw {}; {} newcomers were answered, none by a learner; the longest time without a write was {} ms",
            self.acknowledged, self.links, self.unknown, self.seen, self.newcomers, self.longest_gap
        )
    }
}

impl History {
    /// Reads lines of JSON.
    pub fn read(text: &str) -> Result<Self> {
        let events = text.lines().map(|line| {
            serde_json::from_str(line).with_context(|| format!("the history has the line {line:.200}"))
        });
        Ok(Self {
            events: events.collect::<Result<_>>()?,
        })
    }

    /// Whether all of it can have happened to one cluster that keeps its word.
    pub fn judge(&self) -> Result<Tally> {
        ensure!(
            self.of(Kind::End).next().is_some(),
            "the history does not say what was there in the end"
        );
        let faults = [
            self.lost(),
            self.invented(),
            self.forked(),
            self.reordered(),
            self.stale(),
            self.unseen(),
            self.learners(),
        ]
        .concat();
        let told: Vec<&str> = faults.iter().take(TOLD).map(String::as_str).collect();
        ensure!(
            faults.is_empty(),
            "{} faults in what clients saw: {}",
            faults.len(),
            told.join("; ")
        );
        let tally = self.tally();
        ensure!(tally.acknowledged > 0, "no write was ever acknowledged");
        Ok(tally)
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    fn acknowledged(&self) -> impl Iterator<Item = &Event> {
        let is_write = |event: &&Event| matches!(event.kind, Kind::Put | Kind::Swap);
        self.events.iter().filter(is_write)
    }

    /// Each key of a writer is written once and stays; the chain only grows.
    fn lost(&self) -> Vec<String> {
        let there: BTreeMap<&str, &Event> = self
            .of(Kind::There)
            .map(|event| (event.key.as_str(), event))
            .collect();
        let is_lost = |event: &&Event| match (event.kind, there.get(event.key.as_str())) {
            (_, None) => true,
            (Kind::Put, Some(found)) => found.value != event.value || found.revision != event.revision,
            (_, Some(found)) => {
                found.revision < event.revision || number(&found.value) < number(&event.value)
            }
        };
        let lost = self.acknowledged().filter(is_lost);
        lost.map(|event| match there.get(event.key.as_str()) {
            None => format!(
                "{} was acknowledged at {} and is lost",
                event.value, event.revision
            ),
            Some(found) => format!(
                "{} was acknowledged at {}, and {} of {} is there",
                event.value, event.revision, found.value, found.revision
            ),
        })
        .collect()
    }

    /// Nothing is there that nobody wrote.
    fn invented(&self) -> Vec<String> {
        let tried = |event: &&Event| matches!(event.kind, Kind::Put | Kind::Swap | Kind::Unknown);
        let written: BTreeSet<(&str, &str)> = self
            .events
            .iter()
            .filter(tried)
            .map(|event| (event.key.as_str(), event.value.as_str()))
            .collect();
        let found = self.of(Kind::There).chain(self.of(Kind::Seen));
        found
            .filter(|event| !written.contains(&(event.key.as_str(), event.value.as_str())))
            .map(|event| format!("{} = {} is there, and nobody wrote it", event.key, event.value))
            .chain(
                self.of(Kind::SeenDeleted)
                    .map(|event| format!("{} was deleted, and nobody did it", event.key)),
            )
            .collect()
    }

    /// A revision is one write, and a value is replaced once.
    fn forked(&self) -> Vec<String> {
        let mut at = BTreeMap::new();
        let mut faults = Vec::new();
        let told = self.acknowledged().chain(self.of(Kind::Seen));
        for event in told {
            let first = at.entry(event.revision).or_insert((&event.key, &event.value));
            if *first != (&event.key, &event.value) {
                faults.push(format!(
                    "at revision {} there are both {} and {}",
                    event.revision, first.1, event.value
                ));
            }
        }
        let mut replaced = BTreeMap::new();
        for event in self.of(Kind::Swap) {
            if let Some(other) = replaced.insert(&event.previous, &event.value) {
                faults.push(format!(
                    "{} was replaced by both {other} and {}",
                    event.previous, event.value
                ));
            }
        }
        faults
    }

    /// What began after another had ended has a later revision, and the watcher is told in order.
    fn reordered(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut by_end: Vec<&Event> = self.acknowledged().collect();
        let mut by_begin = by_end.clone();
        by_end.sort_by_key(|event| event.ended);
        by_begin.sort_by_key(|event| event.began);
        let mut ended = by_end.into_iter().peekable();
        let mut newest = 0;
        for event in by_begin {
            while let Some(earlier) = ended.next_if(|earlier| earlier.ended < event.began) {
                newest = newest.max(earlier.revision);
            }
            if event.revision <= newest {
                faults.push(format!(
                    "{} was written at {}, after an answer of revision {newest}",
                    event.value, event.revision
                ));
            }
        }
        let mut last = 0;
        for event in self.of(Kind::Seen) {
            if event.revision <= last {
                faults.push(format!("the watcher was told of {} after {last}", event.revision));
            }
            last = event.revision;
        }
        faults
    }

    /// A read shows at least what was there when it began.
    fn stale(&self) -> Vec<String> {
        let mut swaps: Vec<&Event> = self.of(Kind::Swap).collect();
        swaps.sort_by_key(|event| event.ended);
        let mut reads: Vec<&Event> = self.of(Kind::Read).collect();
        reads.sort_by_key(|event| event.began);
        let mut swaps = swaps.into_iter().peekable();
        let (mut faults, mut least) = (Vec::new(), 0);
        for read in reads {
            while let Some(swap) = swaps.next_if(|swap| swap.ended < read.began) {
                least = least.max(number(&swap.value));
            }
            if number(&read.value) < least {
                faults.push(format!(
                    "a read was answered {:?} when {least} was there",
                    read.value
                ));
            }
        }
        faults
    }

    /// The watcher is told of every write that is not older than what is kept.
    fn unseen(&self) -> Vec<String> {
        let seen: BTreeSet<i64> = self.of(Kind::Seen).map(|event| event.revision).collect();
        let kept = self.of(Kind::Compacted).map(|event| event.revision).max();
        let missed = |event: &&Event| event.revision >= kept.unwrap_or(0) && !seen.contains(&event.revision);
        self.acknowledged()
            .filter(missed)
            .map(|event| {
                format!(
                    "the watcher was never told of {} at {}",
                    event.value, event.revision
                )
            })
            .chain(self.of(Kind::Behind).map(|event| {
                format!(
                    "the watcher was told up to {} and {}",
                    event.revision, event.error
                )
            }))
            .collect()
    }

    /// No client is ever sent to a learner.
    fn learners(&self) -> Vec<String> {
        let by_learner = |event: &&Event| event.error.contains("learner");
        let answered = self.events.iter().filter(by_learner);
        answered
            .map(|event| format!("a client was sent to a learner: {}", event.error))
            .collect()
    }

    fn tally(&self) -> Tally {
        let mut ends: Vec<i64> = self.acknowledged().map(|event| event.ended).collect();
        ends.sort_unstable();
        let gap = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        Tally {
            acknowledged: ends.len(),
            links: self.of(Kind::Swap).count(),
            unknown: self.of(Kind::Unknown).count(),
            seen: self.of(Kind::Seen).count(),
            newcomers: self
                .of(Kind::Read)
                .filter(|event| event.client == NEWCOMER)
                .count(),
            longest_gap: u64::try_from(gap / 1_000_000).unwrap_or(0),
        }
    }
}

/// The number in a link of the chain; what is no link is before all of them.
fn number(value: &str) -> u64 {
    let first = value.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, value: &str, revision: i64, began: i64, ended: i64) -> Event {
        let key = if value.contains(' ') { "w/chain" } else { value };
        Event {
            kind,
            key: key.into(),
            value: value.into(),
            revision,
            began,
            ended,
            ..Event::default()
        }
    }

    fn link(previous: &str, value: &str, revision: i64, began: i64) -> Event {
        Event {
            previous: previous.into(),
            ..event(Kind::Swap, value, revision, began, began + 1)
        }
    }

    /// Two writes, one after the other, two links, and one write without an answer which was done.
    fn right() -> Vec<Event> {
        vec![
            event(Kind::Put, "w/a", 2, 10, 20),
            event(Kind::Put, "w/b", 3, 30, 40),
            link("0", "1 x", 4, 50),
            Event {
                client: NEWCOMER.into(),
                ..event(Kind::Read, "1 x", 4, 60, 61)
            },
            link("1 x", "2 y", 5, 70),
            event(Kind::Unknown, "w/c", 0, 80, 90),
            event(Kind::Seen, "w/a", 2, 0, 21),
            event(Kind::Seen, "w/b", 3, 0, 41),
            event(Kind::Seen, "1 x", 4, 0, 52),
            event(Kind::Seen, "2 y", 5, 0, 72),
            event(Kind::Seen, "w/c", 6, 0, 92),
            event(Kind::There, "w/a", 2, 0, 0),
            event(Kind::There, "w/b", 3, 0, 0),
            event(Kind::There, "w/c", 6, 0, 0),
            event(Kind::There, "2 y", 5, 0, 0),
            event(Kind::End, "", 6, 0, 0),
        ]
    }

    fn complaint(change: impl FnOnce(&mut Vec<Event>)) -> String {
        let mut events = right();
        change(&mut events);
        History { events }.judge().unwrap_err().to_string()
    }

    fn without(kind: Kind, value: &'static str) -> impl FnOnce(&mut Vec<Event>) {
        move |events| events.retain(|event| event.kind != kind || event.value != value)
    }

    #[test]
    fn a_cluster_that_keeps_its_word_is_believed() {
        let tally = History { events: right() }.judge().unwrap();
        assert_eq!(
            tally,
            Tally {
                acknowledged: 4,
                links: 2,
                unknown: 1,
                seen: 5,
                newcomers: 1,
                longest_gap: 0
            }
        );
    }

    #[test]
    fn a_write_without_an_answer_may_be_missing() {
        let mut events = right();
        events.retain(|event| event.value != "w/c" || event.kind == Kind::Unknown);
        assert!(History { events }.judge().is_ok());
    }

    #[test]
    fn a_lost_write_is_found() {
        assert!(complaint(without(Kind::There, "w/a")).contains("w/a was acknowledged at 2 and is lost"));
    }

    #[test]
    fn a_lost_end_of_the_chain_is_found() {
        let said = complaint(|events| {
            let last = events
                .iter_mut()
                .find(|event| event.kind == Kind::There && event.value == "2 y");
            *last.unwrap() = event(Kind::There, "1 x", 4, 0, 0);
        });
        assert!(
            said.contains("2 y was acknowledged at 5, and 1 x of 4 is there"),
            "{said}"
        );
    }

    #[test]
    fn a_fork_is_found_by_its_revisions_and_by_its_chain() {
        let said = complaint(|events| events.insert(0, event(Kind::Put, "w/d", 3, 1, 2)));
        assert!(
            said.contains("at revision 3 there are both w/d and w/b"),
            "{said}"
        );
        let said = complaint(|events| events.push(link("0", "1 z", 7, 95)));
        assert!(said.contains("0 was replaced by both 1 x and 1 z"), "{said}");
    }

    #[test]
    fn writes_in_another_order_than_they_were_made_are_found() {
        let said = complaint(|events| {
            events[0].revision = 3;
            events[1].revision = 2;
        });
        assert!(
            said.contains("w/b was written at 2, after an answer of revision 3"),
            "{said}"
        );
        let said = complaint(|events| events.swap(6, 7));
        assert!(said.contains("the watcher was told of 2 after 3"), "{said}");
    }

    #[test]
    fn a_read_of_the_past_is_found() {
        let said = complaint(|events| events.push(event(Kind::Read, "1 x", 5, 80, 81)));
        assert!(
            said.contains("a read was answered \"1 x\" when 2 was there"),
            "{said}"
        );
    }

    #[test]
    fn what_the_watcher_misses_is_found_unless_it_was_told_of_a_compaction() {
        assert!(complaint(without(Kind::Seen, "w/b")).contains("never told of w/b at 3"));
        let mut events = right();
        events.retain(|event| event.kind != Kind::Seen || event.revision > 3);
        events.push(event(Kind::Compacted, "", 4, 0, 0));
        assert!(History { events }.judge().is_ok());
    }

    #[test]
    fn what_nobody_wrote_is_found() {
        let said = complaint(|events| events.push(event(Kind::There, "w/ghost", 9, 0, 0)));
        assert!(
            said.contains("w/ghost = w/ghost is there, and nobody wrote it"),
            "{said}"
        );
    }

    #[test]
    fn an_answer_of_a_learner_is_found() {
        let said = complaint(|events| {
            events[5].error = "etcdserver: rpc not supported for learner".into();
        });
        assert!(said.contains("sent to a learner"), "{said}");
    }

    #[test]
    fn a_history_without_an_end_proves_nothing() {
        assert!(complaint(without(Kind::End, "")).contains("what was there in the end"));
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let line = r#"{"kind":"seen-deleted","key":"w/a","revision":7,"ended":12}"#;
        let history = History::read(line).unwrap();
        assert_eq!(history.events[0].kind, Kind::SeenDeleted);
        assert!(History::read("{\"kind\":\"strange\"}").is_err());
    }
}
