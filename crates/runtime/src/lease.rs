//! Leader election as pure decisions: what a candidate knows about the lease, what it does next, and until when it
//! may believe that it leads.
//!
//! No IO, no clock. Why there are never two leaders:
//! * every write names the version it replaces, so of two takers one is refused;
//! * a leader believes only until `believe` after the *start* of its last renewal that succeeded;
//! * others wait `duration` after they *saw* the lease change, which is never before that start, and `duration` is
//!   longer than `believe`. No wall clock of another host is ever looked at;
//! * a lease that is not there, or that nobody holds though its holder did not release it, proves nothing: whoever held
//!   it may not have noticed. A lease just created is held without belief until every other belief has run out.

use std::time::Duration;

/// The periods of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease counts after it was seen to change.
    pub duration: Duration,
    /// How long a leader believes in a renewal, from its start; the rest of `duration` is the margin.
    pub believe: Duration,
    /// Pause between renewals.
    pub renew: Duration,
    /// Pause between looks of a standby.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            believe: Duration::from_secs(7),
            renew: Duration::from_secs(2),
            poll: Duration::from_secs(1),
        }
    }
}

/// The lease as the API server stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// resourceVersion.
    pub version: String,
    /// Who holds it, if anybody.
    pub holder: Option<String>,
    /// Its holder gave it up by itself, and believes no more.
    pub released: bool,
    /// What its holder promised to renew within.
    pub duration: Duration,
    /// How often it changed hands.
    pub transitions: i32,
}

/// A write, to be refused unless the stored version is still `replaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version this write replaces; `None` creates.
    pub replaces: Option<String>,
    /// The holder to be; `None` releases.
    pub holder: Option<String>,
    /// The number of transitions to store.
    pub transitions: i32,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Read the lease: nothing is known, or what is known may be outdated.
    Read,
    /// Write it now.
    Write(Write),
    /// Do nothing for this long, then decide again.
    Wait(Duration),
}

#[derive(Clone, Debug)]
struct Seen {
    record: Option<Record>,
    since: Duration,
}

/// One process that would lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    me: String,
    timing: Timing,
    seen: Option<Seen>,
    /// When the lease was last read or written; a standby looks again after `poll`.
    looked: Option<Duration>,
    renewed: Option<Duration>,
    /// Before this, somebody may believe in a lease that was deleted before ours was created.
    doubts_until: Duration,
    retired: bool,
}

impl Candidate {
    /// A candidate under a name no other process ever has.
    pub fn new(me: impl Into<String>, timing: Timing) -> Self {
        Self {
            me: me.into(),
            timing,
            seen: None,
            looked: None,
            renewed: None,
            doubts_until: Duration::ZERO,
            retired: false,
        }
    }

    /// This candidate's name.
    pub fn name(&self) -> &str {
        &self.me
    }

    /// Until when this candidate may believe that it leads.
    pub fn believes_until(&self) -> Option<Duration> {
        self.renewed
            .filter(|_| !self.retired)
            .map(|started| started + self.timing.believe)
    }

    /// Whether it believes that it leads.
    pub fn leads(&self, now: Duration) -> bool {
        now >= self.doubts_until && self.believes_until().is_some_and(|end| now < end)
    }

    /// The answer of a read.
    pub fn read(&mut self, record: Option<Record>, now: Duration) {
        self.looked = Some(now);
        let changed = self.seen.as_ref().is_none_or(|seen| seen.record != record);
        if changed {
            if self.is_mine(record.as_ref()) {
                // Ours without an answer that said so: it may have been our creation of it that was not answered.
                if self.renewed.is_none() {
                    self.doubts_until = now + self.timing.believe;
                }
            } else {
                self.renewed = None;
            }
            self.seen = Some(Seen { record, since: now });
        }
    }

    /// The answer of a write that was sent at `started` and stored.
    pub fn wrote(&mut self, stored: Record, started: Duration, now: Duration) {
        if self.is_mine(Some(&stored)) {
            self.renewed = Some(started);
            if self.seen.as_ref().is_some_and(|seen| seen.record.is_none()) {
                self.doubts_until = now + self.timing.believe;
            }
        } else {
            self.renewed = None;
        }
        self.read(Some(stored), now);
    }

    fn is_mine(&self, record: Option<&Record>) -> bool {
        record.and_then(|record| record.holder.as_deref()) == Some(&self.me)
    }

    /// A read or write failed, was refused, or was never answered: what is known may be outdated.
    pub fn failed(&mut self) {
        self.looked = None;
    }

    /// What to do next.
    pub fn decide(&self, now: Duration) -> Decision {
        let (Some(seen), Some(looked)) = (&self.seen, self.looked) else {
            return Decision::Read;
        };
        if self.retired {
            return Decision::Wait(self.timing.poll);
        }
        let Some(record) = &seen.record else {
            return if now >= looked + self.timing.poll {
                Decision::Read
            } else {
                self.take(None, 0)
            };
        };
        match record.holder.as_deref() {
            Some(holder) if holder == self.me => {
                let pause = self
                    .renewed
                    .map_or(Duration::ZERO, |started| started + self.timing.renew);
                let doubt = self.doubts_until.checked_sub(now).filter(|rest| !rest.is_zero());
                match pause.checked_sub(now) {
                    Some(rest) if !rest.is_zero() => {
                        Decision::Wait(doubt.map_or(rest, |doubt| doubt.min(rest)))
                    }
                    _ => self.take(Some(record), record.transitions),
                }
            }
            None if record.released => self.take(Some(record), record.transitions.saturating_add(1)),
            _ => {
                let expires = seen.since + record.duration.max(self.timing.duration);
                let next_look = looked + self.timing.poll;
                if now >= next_look {
                    Decision::Read
                } else if now >= expires {
                    self.take(Some(record), record.transitions.saturating_add(1))
                } else {
                    Decision::Wait(next_look.saturating_sub(now))
                }
            }
        }
    }

    /// Stops leading at once and for good; returns the write that lets others take over without waiting, if the lease
    /// is still ours as far as we know. While somebody else may believe, there is none: others must wait as this one
    /// did.
    pub fn retire(&mut self, now: Duration) -> Option<Write> {
        self.retired = true;
        if now < self.doubts_until {
            return None;
        }
        let record = self.seen.as_ref()?.record.as_ref()?;
        (record.holder.as_deref() == Some(&self.me)).then(|| Write {
            replaces: Some(record.version.clone()),
            holder: None,
            transitions: record.transitions,
        })
    }

    fn take(&self, record: Option<&Record>, transitions: i32) -> Decision {
        Decision::Write(Write {
            replaces: record.map(|r| r.version.clone()),
            holder: Some(self.me.clone()),
            transitions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held_by(holder: Option<&str>, version: &str) -> Record {
        Record {
            version: version.to_owned(),
            holder: holder.map(str::to_owned),
            released: holder.is_none(),
            duration: s(10),
            transitions: 4,
        }
    }

    fn candidate() -> Candidate {
        Candidate::new("me", Timing::default())
    }

    #[test]
    fn an_absent_lease_is_created() {
        let mut me = candidate();
        assert_eq!(me.decide(s(0)), Decision::Read);
        me.read(None, s(0));
        let write = Write {
            replaces: None,
            holder: Some("me".into()),
            transitions: 0,
        };
        assert_eq!(me.decide(s(0)), Decision::Write(write));
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let mut me = candidate();
        me.read(Some(held_by(None, "5")), s(0));
        let write = Write {
            replaces: Some("5".into()),
            holder: Some("me".into()),
            transitions: 5,
        };
        assert_eq!(me.decide(s(0)), Decision::Write(write));
    }

    #[test]
    fn a_held_lease_is_taken_only_after_it_stood_still_for_its_whole_duration() {
        let mut me = candidate();
        for second in 0..10 {
            me.read(Some(held_by(Some("other"), "5")), s(second));
            assert_eq!(me.decide(s(second)), Decision::Wait(s(1)), "{second}");
        }
        me.read(Some(held_by(Some("other"), "5")), s(10));
        assert!(matches!(me.decide(s(10)), Decision::Write(_)));
    }

    #[test]
    fn a_renewal_by_the_other_starts_the_wait_anew() {
        let mut me = candidate();
        me.read(Some(held_by(Some("other"), "5")), s(0));
        me.read(Some(held_by(Some("other"), "6")), s(9));
        me.read(Some(held_by(Some("other"), "6")), s(18));
        assert!(matches!(me.decide(s(18)), Decision::Wait(_)));
    }

    #[test]
    fn a_longer_promise_of_the_holder_is_honoured() {
        let mut me = candidate();
        let record = Record {
            duration: s(60),
            ..held_by(Some("other"), "5")
        };
        me.read(Some(record.clone()), s(0));
        me.read(Some(record), s(30));
        assert!(matches!(me.decide(s(30)), Decision::Wait(_)));
    }

    #[test]
    fn a_standby_that_slept_reads_before_it_takes() {
        let mut me = candidate();
        me.read(Some(held_by(Some("other"), "5")), s(0));
        assert_eq!(me.decide(s(60)), Decision::Read);
    }

    #[test]
    fn a_lease_just_created_is_not_believed_in_before_the_holder_of_a_deleted_one_must_have_noticed() {
        let mut me = candidate();
        me.read(Some(held_by(Some("other"), "5")), s(0));
        me.read(None, s(1));
        assert!(matches!(me.decide(s(1)), Decision::Write(_)));
        me.wrote(held_by(Some("me"), "6"), s(1), s(2));
        for (second, version) in [(3, "7"), (5, "8"), (7, "9"), (8, "10")] {
            me.wrote(held_by(Some("me"), version), s(second), s(second));
            assert!(!me.leads(s(second)), "{second}");
        }
        assert_eq!(me.decide(s(8)), Decision::Wait(s(1)), "and then at once");
        assert!(me.leads(s(9)));
    }

    #[test]
    fn a_creation_that_was_never_answered_is_doubted_too() {
        let mut me = candidate();
        me.read(None, s(0));
        me.failed();
        me.read(Some(held_by(Some("me"), "1")), s(3));
        me.wrote(held_by(Some("me"), "2"), s(3), s(3));
        assert!(!me.leads(s(9)));
        me.wrote(held_by(Some("me"), "3"), s(9), s(9));
        assert!(me.leads(s(10)));
    }

    #[test]
    fn one_that_doubts_stops_without_a_release() {
        let mut me = candidate();
        me.read(None, s(0));
        me.wrote(held_by(Some("me"), "1"), s(0), s(0));
        assert_eq!(me.retire(s(6)), None);
    }

    #[test]
    fn a_lease_that_nobody_holds_and_nobody_released_is_waited_for_like_a_held_one() {
        let mut me = candidate();
        let cleared = Record {
            released: false,
            ..held_by(None, "5")
        };
        me.read(Some(cleared.clone()), s(0));
        assert_eq!(me.decide(s(0)), Decision::Wait(s(1)));
        me.read(Some(cleared), s(10));
        assert!(matches!(me.decide(s(10)), Decision::Write(_)));
    }

    #[test]
    fn seeing_another_holder_ends_belief() {
        let mut me = candidate();
        me.wrote(held_by(Some("me"), "6"), s(100), s(100));
        me.read(Some(held_by(Some("other"), "7")), s(101));
        assert!(!me.leads(s(101)));
    }

    #[test]
    fn belief_counts_from_the_start_of_the_renewal() {
        let mut me = candidate();
        me.wrote(held_by(Some("me"), "6"), s(100), s(104));
        assert!(me.leads(s(106)));
        assert!(!me.leads(s(107)));
    }

    #[test]
    fn a_leader_renews_every_two_seconds() {
        let mut me = candidate();
        me.wrote(held_by(Some("me"), "6"), s(100), s(100));
        assert_eq!(me.decide(s(100)), Decision::Wait(s(2)));
        let write = Write {
            replaces: Some("6".into()),
            holder: Some("me".into()),
            transitions: 4,
        };
        assert_eq!(me.decide(s(102)), Decision::Write(write));
    }

    #[test]
    fn retiring_ends_belief_before_the_release_is_sent() {
        let mut me = candidate();
        me.wrote(held_by(Some("me"), "6"), s(100), s(100));
        let release = me.retire(s(100));
        assert_eq!(
            release,
            Some(Write {
                replaces: Some("6".into()),
                holder: None,
                transitions: 4
            })
        );
        assert!(!me.leads(s(100)));
        assert_eq!(candidate().retire(s(100)), None);
    }
}
