//! Job slots: which waiting run may start, and which run holds a slot.
//!
//! A run starts in the order of its due time. A namespace that would hold more than half of the slots comes after all others.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::observed_state::ObservedPod;

/// How long a run holds its slot although no container of its Job runs: its pod may still start.
const START_ALLOWANCE: SignedDuration = SignedDuration::from_mins(2);

/// Whether a run holds a slot: its container runs, or it started or ended less than two minutes ago.
///
/// A Job whose pod cannot start, or whose node is lost, would otherwise keep all other backups of the installation
/// waiting.
pub fn holds_slot<'a>(
    started_at: Timestamp,
    pods: impl IntoIterator<Item = &'a ObservedPod>,
    now: Timestamp,
) -> bool {
    let mut idle_since = started_at;
    for pod in pods {
        if pod.is_running() {
            return true;
        }
        idle_since = pod.ended_at().map_or(idle_since, |end| end.max(idle_since));
    }
    is_allowed(idle_since, now)
}

/// Whether the Job of a pod holds a slot, if no status says when its run started: the container runs, or it ended, or
/// had to, less than two minutes ago and the pod still exists.
pub fn pod_holds_slot(pod: &ObservedPod, now: Timestamp) -> bool {
    let is_ending = pod.is_active && pod.ended_at().is_some_and(|end| is_allowed(end, now));
    pod.is_running() || is_ending
}

fn is_allowed(idle_since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(idle_since) < START_ALLOWANCE
}

/// The namespace and the name of an `EtcdBackup`.
pub type BackupName = (String, String);

/// What one `EtcdBackup` uses of the slots, as its last reconcile found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUse {
    /// How many slots its runs hold.
    pub held: usize,
    /// Since when a run has been due that may start now and has no slot.
    pub waiting_since: Option<Timestamp>,
}

/// What is known of one `EtcdBackup`.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    recorded: SlotUse,
    /// A slot that is granted, while the start of the run is not persisted yet.
    is_granted: bool,
}

impl Entry {
    /// How many slots it holds, including one that is granted.
    fn held(self) -> usize {
        self.recorded.held + usize::from(self.is_granted)
    }
}

/// The place of a waiting namespace in line: whether it holds half of the slots or more, the due time and the name of its
/// first waiting `EtcdBackup`, and its own name.
type Turn = (bool, Timestamp, String, String);

/// All slots: who holds them and who waits. A change costs as much as the number of slots, however many namespaces wait.
#[derive(Clone, Debug)]
pub struct SlotQueue {
    limit: usize,
    entries: BTreeMap<BackupName, Entry>,
    held_by_namespace: BTreeMap<String, usize>,
    waiting: BTreeMap<String, BTreeSet<(Timestamp, String)>>,
    /// The waiting namespaces in the order of their turns.
    turns: BTreeSet<Turn>,
}

impl SlotQueue {
    /// A queue for `limit` slots, at least one.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            entries: BTreeMap::new(),
            held_by_namespace: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: BTreeSet::new(),
        }
    }

    /// The number of slots.
    pub fn limit(&self) -> usize {
        self.limit
    }

    fn in_use(&self) -> usize {
        self.held_by_namespace.values().sum()
    }

    /// Adds an `EtcdBackup` to the waiting ones, and grants it a slot if it is next. Returns whether it was granted:
    /// the slot then counts as held until the next `record`.
    pub fn take(&mut self, name: &BackupName, due: Timestamp) -> bool {
        let mut entry = self.entries.get(name).copied().unwrap_or_default();
        entry.recorded.waiting_since = Some(due);
        entry.is_granted = false;
        self.set(name, entry);
        let is_next = self.next().contains(name);
        if is_next {
            entry.is_granted = true;
            entry.recorded.waiting_since = None;
            self.set(name, entry);
        }
        is_next
    }

    /// Records what an `EtcdBackup` uses when its reconcile has ended. A slot that was granted to it is in `used`, or is
    /// returned.
    pub fn record(&mut self, name: &BackupName, used: SlotUse) {
        self.set(
            name,
            Entry {
                recorded: used,
                is_granted: false,
            },
        );
    }

    /// Records that an `EtcdBackup` could not be read: it holds what it held before, and does not wait, so that it keeps no other
    /// run from starting.
    pub fn record_unread(&mut self, name: &BackupName) {
        let before = self.entries.get(name).copied().unwrap_or_default();
        self.record(
            name,
            SlotUse {
                waiting_since: None,
                ..before.recorded
            },
        );
    }

    /// Whether an `EtcdBackup` holds slots.
    pub fn is_held_by(&self, name: &BackupName) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.held() > 0)
    }

    /// Whether a namespace that holds this number of slots comes after the others.
    fn has_its_share(&self, held: usize) -> bool {
        held >= self.limit / 2
    }

    /// The turn of a namespace; `None` if nothing waits in it.
    fn turn(&self, namespace: &str) -> Option<Turn> {
        let (due, name) = self.waiting.get(namespace)?.first()?;
        let held = self.held_by_namespace.get(namespace).copied().unwrap_or(0);
        Some((self.has_its_share(held), *due, name.clone(), namespace.to_owned()))
    }

    /// The waiting `EtcdBackup`s that may start a run now, in their order: at most as many as slots are free.
    pub fn next(&self) -> Vec<BackupName> {
        let free = self.limit.saturating_sub(self.in_use());
        // Each free slot advances one namespace, so no namespace behind the first ones can come to its turn.
        let mut queues: Vec<_> = self
            .turns
            .iter()
            .take(free)
            .filter_map(|(_, _, _, namespace)| {
                let held = self.held_by_namespace.get(namespace).copied().unwrap_or(0);
                Some((namespace, held, self.waiting.get(namespace)?.iter().peekable()))
            })
            .collect();
        let mut next = Vec::new();
        for _ in 0..free {
            let first = queues
                .iter_mut()
                .filter_map(|(namespace, held, waiting)| {
                    let head = *waiting.peek()?;
                    Some(((self.has_its_share(*held), head, *namespace), held, waiting))
                })
                .min_by(|(one, ..), (other, ..)| one.cmp(other));
            let Some(((_, (_, name), namespace), held, waiting)) = first else {
                break;
            };
            next.push((namespace.clone(), name.clone()));
            *held += 1;
            waiting.next();
        }
        next
    }

    /// Replaces an entry and the counts that follow from it. An entry that neither holds a slot nor waits is removed.
    fn set(&mut self, name: &BackupName, entry: Entry) {
        let before = self.entries.remove(name).unwrap_or_default();
        let (namespace, own) = name;
        if let Some(turn) = self.turn(namespace) {
            self.turns.remove(&turn);
        }
        if let Some(since) = before.recorded.waiting_since
            && let Some(waiting) = self.waiting.get_mut(namespace)
        {
            waiting.remove(&(since, own.clone()));
            if waiting.is_empty() {
                self.waiting.remove(namespace);
            }
        }
        if let Some(since) = entry.recorded.waiting_since {
            let waiting = self.waiting.entry(namespace.clone()).or_default();
            waiting.insert((since, own.clone()));
        }
        let held = self.held_by_namespace.remove(namespace).unwrap_or(0) + entry.held();
        let held = held.saturating_sub(before.held());
        if held > 0 {
            self.held_by_namespace.insert(namespace.clone(), held);
        }
        if entry.held() > 0 || entry.recorded.waiting_since.is_some() {
            self.entries.insert(name.clone(), entry);
        }
        self.turns.extend(self.turn(namespace));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::observed_state::{ContainerDeath, Termination};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn name(namespace: &str, name: &str) -> BackupName {
        (namespace.to_owned(), name.to_owned())
    }

    fn waiting(second: i64) -> SlotUse {
        SlotUse {
            held: 0,
            waiting_since: Some(at(second)),
        }
    }

    fn holding(held: usize) -> SlotUse {
        SlotUse {
            held,
            waiting_since: None,
        }
    }

    fn names(next: &[BackupName]) -> Vec<&str> {
        next.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn runs_start_in_the_order_of_their_due_times_and_within_the_limit() {
        let mut queue = SlotQueue::new(3);
        for (second, own) in [(5, "c"), (1, "b"), (1, "a"), (9, "d")] {
            queue.record(&name("shop", own), waiting(second));
        }
        for (held, expected) in [
            (0, vec!["a", "b", "c"]),
            (1, vec!["a", "b"]),
            (3, vec![]),
            (7, vec![]),
        ] {
            queue.record(&name("shop", "other"), holding(held));
            assert_eq!(names(&queue.next()), expected, "{held} slots in use");
        }
    }

    #[test]
    fn a_granted_slot_is_in_use_until_the_reconcile_is_recorded() {
        let mut queue = SlotQueue::new(1);
        assert!(queue.take(&name("shop", "a"), at(1)));
        assert!(!queue.take(&name("shop", "b"), at(0)));
        // The reconcile of a failed: its slot is free again, and b does not wait for a.
        queue.record(&name("shop", "a"), SlotUse::default());
        assert_eq!(names(&queue.next()), ["b"]);
        assert!(queue.take(&name("shop", "b"), at(0)));
        queue.record(&name("shop", "b"), holding(1));
        assert!(queue.is_held_by(&name("shop", "b")) && !queue.is_held_by(&name("shop", "a")));
        assert!(!queue.take(&name("shop", "a"), at(1)));
        queue.record(&name("shop", "b"), SlotUse::default());
        assert!(queue.take(&name("shop", "a"), at(1)));
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_slots_and_no_other_run_waiting() {
        let mut queue = SlotQueue::new(2);
        queue.record(
            &name("shop", "a"),
            SlotUse {
                held: 1,
                waiting_since: Some(at(1)),
            },
        );
        assert!(!queue.take(&name("shop", "b"), at(2)));
        queue.record_unread(&name("shop", "a"));
        assert!(queue.take(&name("shop", "b"), at(2)));
        assert!(!queue.take(&name("shop", "c"), at(3)), "a holds its slot");
    }

    #[test]
    fn a_run_that_may_not_start_keeps_no_other_run_waiting() {
        let mut queue = SlotQueue::new(2);
        for own in ["a", "b", "c"] {
            assert_eq!(queue.take(&name("shop", own), at(1)), own != "c");
        }
        // The cluster of all three is scaled to 0: their reconciles find that none may start.
        for own in ["a", "b", "c"] {
            queue.record(&name("shop", own), SlotUse::default());
        }
        assert!(queue.take(&name("bank", "nightly"), at(9)));
    }

    #[test]
    fn a_namespace_with_half_of_the_slots_comes_after_the_others() {
        let mut queue = SlotQueue::new(4);
        for own in ["a", "b", "c", "d", "e"] {
            queue.record(&name("shop", own), waiting(1));
        }
        queue.record(&name("bank", "late"), waiting(50));
        assert_eq!(names(&queue.next()), ["a", "b", "late", "c"]);
        // No slot stays free for a namespace in which nothing waits.
        queue.record(&name("bank", "late"), SlotUse::default());
        assert_eq!(names(&queue.next()), ["a", "b", "c", "d"]);
    }

    fn pod(has_started: bool, is_active: bool, ended: Option<i64>) -> ObservedPod {
        ObservedPod {
            job: "orders-1".to_owned(),
            job_uid: "1".to_owned(),
            is_active,
            deleted_at: None,
            ends_by: None,
            has_started,
            waiting_reason: None,
            termination: ended.map(|second| Termination {
                finished_at: at(second),
                result: Err(ContainerDeath {
                    reason: "Error".to_owned(),
                    exit_code: 1,
                    unreadable: None,
                }),
            }),
        }
    }

    fn deleted(second: i64, pod: ObservedPod) -> ObservedPod {
        ObservedPod {
            deleted_at: Some(at(second)),
            ..pod
        }
    }

    #[test]
    fn a_run_holds_its_slot_while_its_container_runs_or_for_two_minutes() {
        for (pods, now, expected) in [
            (vec![], 119, true),
            (vec![], 120, false),
            (vec![pod(false, true, None)], 119, true),
            (vec![pod(false, true, None)], 120, false),
            (vec![pod(true, true, None)], 9_999, true),
            (vec![pod(true, false, Some(500))], 619, true),
            (
                vec![pod(true, false, Some(500)), pod(false, true, None)],
                620,
                false,
            ),
            // An injected container goes on.
            (vec![pod(true, true, Some(500))], 619, true),
            (vec![pod(true, true, Some(500))], 620, false),
            // The kubelet of a lost node never reports the end of a pod. A grace period may lie ahead.
            (vec![deleted(500, pod(true, true, None))], 470, true),
            (vec![deleted(500, pod(true, true, None))], 619, true),
            (vec![deleted(500, pod(true, true, None))], 620, false),
            (vec![deleted(500, pod(true, true, Some(460)))], 580, false),
            (vec![deleted(500, pod(false, true, None))], 500, false),
        ] {
            assert_eq!(holds_slot(at(0), &pods, at(now)), expected, "{pods:?} at {now}");
        }
    }

    #[test]
    fn the_pod_of_a_lost_node_holds_a_slot_for_two_minutes_if_its_object_is_gone() {
        for (pod, now, expected) in [
            (pod(true, true, None), 9_999, true),
            (pod(false, true, None), 0, false),
            (pod(true, false, Some(500)), 500, false),
            (deleted(500, pod(true, true, None)), 619, true),
            (deleted(500, pod(true, true, None)), 620, false),
        ] {
            assert_eq!(pod_holds_slot(&pod, at(now)), expected, "{pod:?} at {now}");
        }
    }

    #[test]
    fn a_namespace_never_gets_more_than_half_of_an_odd_number_of_slots_while_another_one_waits() {
        let mut queue = SlotQueue::new(3);
        for own in ["a", "b", "c"] {
            queue.record(&name("shop", own), waiting(1));
        }
        queue.record(&name("bank", "late"), waiting(50));
        assert_eq!(names(&queue.next())[..2], ["a", "late"]);
        // With a single slot all namespaces take turns by their due times.
        let mut queue = SlotQueue::new(1);
        queue.record(&name("shop", "a"), waiting(1));
        queue.record(&name("bank", "late"), waiting(50));
        assert_eq!(names(&queue.next()), ["a"]);
    }

    /// The definition of [`SlotQueue::next`]: each free slot goes to the first of all waiting `EtcdBackup`s.
    fn walk(queue: &SlotQueue) -> Vec<BackupName> {
        let mut held = queue.held_by_namespace.clone();
        let waits =
            |(name, entry): (&BackupName, &Entry)| Some((entry.recorded.waiting_since?, name.clone()));
        let mut waiting: Vec<_> = queue.entries.iter().filter_map(waits).collect();
        let mut next = Vec::new();
        while queue.in_use() + next.len() < queue.limit && !waiting.is_empty() {
            waiting.sort_by_key(|(due, (namespace, own))| {
                let is_over = held.get(namespace).copied().unwrap_or(0) >= queue.limit / 2;
                (is_over, *due, own.clone(), namespace.clone())
            });
            let (_, name) = waiting.remove(0);
            *held.entry(name.0.clone()).or_default() += 1;
            next.push(name);
        }
        next
    }

    proptest! {
        #[test]
        fn every_run_starts_and_the_limit_holds(
            limit in 1_usize..6,
            runs in prop::collection::btree_set((0_u8..4, 0_u8..40), 1..80),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut queue = SlotQueue::new(limit);
            for (namespace, run) in &runs {
                let own = name(&namespace.to_string(), &run.to_string());
                queue.record(&own, waiting(i64::from(*run)));
            }
            let (mut running, mut left, mut ends) = (Vec::new(), runs.len(), ends.iter().cycle());
            while left > 0 {
                for next in queue.next() {
                    prop_assert!(queue.take(&next, at(i64::from(next.1.parse::<u8>().unwrap()))));
                    queue.record(&next, holding(1));
                    running.push(next);
                }
                prop_assert!(!running.is_empty() && running.len() <= limit);
                prop_assert_eq!(queue.in_use(), running.len());
                let ended = running.swap_remove(ends.next().unwrap().index(running.len()));
                queue.record(&ended, SlotUse::default());
                left -= 1;
            }
            prop_assert!(queue.entries.is_empty() && queue.waiting.is_empty() && queue.turns.is_empty());
        }

        #[test]
        fn the_next_runs_are_those_that_a_walk_through_all_namespaces_finds(
            limit in 1_usize..7,
            changes in prop::collection::vec((0_u8..6, 0_u8..4, 0_usize..3, prop::option::of(0_i64..9)), 1..60),
        ) {
            let mut queue = SlotQueue::new(limit);
            for (namespace, own, held, due) in changes {
                let used = SlotUse { held, waiting_since: due.map(at) };
                queue.record(&name(&namespace.to_string(), &own.to_string()), used);
                prop_assert_eq!(queue.next(), walk(&queue));
            }
        }
    }
}
