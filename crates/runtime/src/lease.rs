//! Leader election as pure decisions: what a candidate knows about the lease, what it does next, and until when it is
//! the leader. No IO, no clock.
//!
//! There are never two leaders, for these reasons:
//! * Every write names the version it replaces, so that of two concurrent acquisitions the API server refuses one.
//! * A leader leads only until `renew_deadline` after the *start* of its last successful renewal.
//! * Other candidates wait `lease_duration` after they *observed* a change of the lease. That is never before the start of
//!   the renewal, and `lease_duration` exceeds `renew_deadline`. Wall clocks of other hosts are never compared.
//! * A missing lease, or one without a holder that was not released, proves nothing: the previous holder may not have
//!   noticed. A candidate that creates the lease leads only after every other leadership must have expired.

use std::time::Duration;

/// The periods of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long other candidates respect the lease after they observed a change.
    pub lease_duration: Duration,
    /// How long a renewal makes the holder the leader, from the start of the renewal. Shorter than `lease_duration`; the
    /// difference is the safety margin.
    pub renew_deadline: Duration,
    /// Interval between renewals.
    pub renew_interval: Duration,
    /// Interval between reads of a standby.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            renew_interval: Duration::from_secs(2),
            retry_period: Duration::from_secs(1),
        }
    }
}

/// The lease as the API server stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The resourceVersion.
    pub version: String,
    /// The identity of the holder, if there is one.
    pub holder: Option<String>,
    /// Whether the holder released the lease and thus is no longer the leader.
    pub released: bool,
    /// The lease duration that the holder announced.
    pub duration: Duration,
    /// How often the holder changed.
    pub transitions: i32,
}

/// A write that the API server refuses unless the stored version is still `replaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version to replace; `None` creates the lease.
    pub replaces: Option<String>,
    /// The new holder; `None` releases the lease.
    pub holder: Option<String>,
    /// The number of transitions to store.
    pub transitions: i32,
}

/// The next action of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Read the lease, because nothing is known or the known record may be outdated.
    Read,
    /// Write the lease now.
    Write(Write),
    /// Wait this long, then decide again.
    Wait(Duration),
}

/// The lease as read last; `None` if it does not exist.
#[derive(Clone, Debug)]
struct ObservedRecord {
    record: Option<Record>,
    /// When this candidate first observed the record.
    since: Duration,
}

/// One process that competes for leadership.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    observed: Option<ObservedRecord>,
    /// When the lease was last read or written; a standby reads again after `retry_period`.
    last_call: Option<Duration>,
    /// Start of the last successful renewal.
    last_renewal: Option<Duration>,
    /// Until then another process may still be the leader by a lease that was deleted before this one was created.
    rival_until: Duration,
    /// Whether this candidate gave up leadership permanently.
    is_released: bool,
}

impl Candidate {
    /// Creates a candidate. `identity` must be unique over all processes.
    pub fn new(identity: impl Into<String>, timing: Timing) -> Self {
        Self {
            identity: identity.into(),
            timing,
            observed: None,
            last_call: None,
            last_renewal: None,
            rival_until: Duration::ZERO,
            is_released: false,
        }
    }

    /// The identity of this candidate.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// When the leadership from the last renewal expires; `None` without a renewal, and after the release.
    pub fn leads_until(&self) -> Option<Duration> {
        self.last_renewal
            .filter(|_| !self.is_released)
            .map(|started| started + self.timing.renew_deadline)
    }

    /// Whether this candidate is the leader: its last renewal has not expired, and no earlier holder can still lead.
    pub fn is_leader(&self, now: Duration) -> bool {
        now >= self.rival_until && self.leads_until().is_some_and(|end| now < end)
    }

    /// Processes the result of a read. A changed record begins the wait for its expiry anew, and another holder ends
    /// the leadership.
    pub fn on_read(&mut self, record: Option<Record>, now: Duration) {
        self.last_call = Some(now);
        let changed = self
            .observed
            .as_ref()
            .is_none_or(|observed| observed.record != record);
        if changed {
            if self.is_mine(record.as_ref()) {
                // Held without a confirmed write: the unanswered write may have been the creation of the lease.
                if self.last_renewal.is_none() {
                    self.rival_until = now + self.timing.renew_deadline;
                }
            } else {
                self.last_renewal = None;
            }
            self.observed = Some(ObservedRecord { record, since: now });
        }
    }

    /// Processes a successful write that was sent at `started`. From then on, not from the answer, the leadership
    /// counts.
    pub fn on_write(&mut self, stored: Record, started: Duration, now: Duration) {
        if self.is_mine(Some(&stored)) {
            self.last_renewal = Some(started);
            if self
                .observed
                .as_ref()
                .is_some_and(|observed| observed.record.is_none())
            {
                self.rival_until = now + self.timing.renew_deadline;
            }
        } else {
            self.last_renewal = None;
        }
        self.on_read(Some(stored), now);
    }

    fn is_mine(&self, record: Option<&Record>) -> bool {
        record.and_then(|record| record.holder.as_deref()) == Some(&self.identity)
    }

    /// Processes a call that failed, was refused or was never answered: the known record may be outdated.
    pub fn on_failure(&mut self) {
        self.last_call = None;
    }

    /// Decides the next action.
    pub fn decide(&self, now: Duration) -> Decision {
        let (Some(observed), Some(last_call)) = (&self.observed, self.last_call) else {
            return Decision::Read;
        };
        if self.is_released {
            return Decision::Wait(self.timing.retry_period);
        }
        let Some(record) = &observed.record else {
            return if now >= last_call + self.timing.retry_period {
                Decision::Read
            } else {
                self.acquire(None, 0)
            };
        };
        match record.holder.as_deref() {
            Some(holder) if holder == self.identity => {
                let until_renewal = self
                    .last_renewal
                    .map_or(Duration::ZERO, |started| started + self.timing.renew_interval);
                let uncertain = self
                    .rival_until
                    .checked_sub(now)
                    .filter(|remaining| !remaining.is_zero());
                match until_renewal.checked_sub(now) {
                    Some(remaining) if !remaining.is_zero() => {
                        Decision::Wait(uncertain.map_or(remaining, |uncertain| uncertain.min(remaining)))
                    }
                    _ => self.acquire(Some(record), record.transitions),
                }
            }
            None if record.released => self.acquire(Some(record), record.transitions.saturating_add(1)),
            _ => {
                let expires = observed.since + record.duration.max(self.timing.lease_duration);
                let next_read = last_call + self.timing.retry_period;
                if now >= next_read {
                    Decision::Read
                } else if now >= expires {
                    self.acquire(Some(record), record.transitions.saturating_add(1))
                } else {
                    Decision::Wait(next_read.saturating_sub(now))
                }
            }
        }
    }

    /// Ends leadership permanently. If this candidate holds the lease as far as it knows, returns the write that
    /// releases it, so that another candidate can lead without waiting.
    ///
    /// While another process may still be the leader, there is no such write: other candidates must wait as this one did.
    pub fn release(&mut self, now: Duration) -> Option<Write> {
        self.is_released = true;
        if now < self.rival_until {
            return None;
        }
        let record = self.observed.as_ref()?.record.as_ref()?;
        (record.holder.as_deref() == Some(&self.identity)).then(|| Write {
            replaces: Some(record.version.clone()),
            holder: None,
            transitions: record.transitions,
        })
    }

    fn acquire(&self, record: Option<&Record>, transitions: i32) -> Decision {
        Decision::Write(Write {
            replaces: record.map(|r| r.version.clone()),
            holder: Some(self.identity.clone()),
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

    fn new_candidate() -> Candidate {
        Candidate::new("me", Timing::default())
    }

    #[test]
    fn an_absent_lease_is_created() {
        let mut candidate = new_candidate();
        assert_eq!(candidate.decide(s(0)), Decision::Read);
        candidate.on_read(None, s(0));
        let write = Write {
            replaces: None,
            holder: Some("me".into()),
            transitions: 0,
        };
        assert_eq!(candidate.decide(s(0)), Decision::Write(write));
    }

    #[test]
    fn a_released_lease_is_acquired_at_once() {
        let mut candidate = new_candidate();
        candidate.on_read(Some(held_by(None, "5")), s(0));
        let write = Write {
            replaces: Some("5".into()),
            holder: Some("me".into()),
            transitions: 5,
        };
        assert_eq!(candidate.decide(s(0)), Decision::Write(write));
    }

    #[test]
    fn a_held_lease_is_acquired_only_if_unchanged_for_its_whole_duration() {
        let mut candidate = new_candidate();
        for second in 0..10 {
            candidate.on_read(Some(held_by(Some("other"), "5")), s(second));
            assert_eq!(candidate.decide(s(second)), Decision::Wait(s(1)), "{second}");
        }
        candidate.on_read(Some(held_by(Some("other"), "5")), s(10));
        assert!(matches!(candidate.decide(s(10)), Decision::Write(_)));
    }

    #[test]
    fn a_renewal_by_the_holder_restarts_the_wait() {
        let mut candidate = new_candidate();
        candidate.on_read(Some(held_by(Some("other"), "5")), s(0));
        candidate.on_read(Some(held_by(Some("other"), "6")), s(9));
        candidate.on_read(Some(held_by(Some("other"), "6")), s(18));
        assert!(matches!(candidate.decide(s(18)), Decision::Wait(_)));
    }

    #[test]
    fn a_longer_lease_duration_of_the_holder_is_respected() {
        let mut candidate = new_candidate();
        let record = Record {
            duration: s(60),
            ..held_by(Some("other"), "5")
        };
        candidate.on_read(Some(record.clone()), s(0));
        candidate.on_read(Some(record), s(30));
        assert!(matches!(candidate.decide(s(30)), Decision::Wait(_)));
    }

    #[test]
    fn a_standby_that_was_suspended_reads_before_it_acquires() {
        let mut candidate = new_candidate();
        candidate.on_read(Some(held_by(Some("other"), "5")), s(0));
        assert_eq!(candidate.decide(s(60)), Decision::Read);
    }

    #[test]
    fn a_created_lease_gives_no_leadership_before_the_holder_of_a_deleted_one_expired() {
        let mut candidate = new_candidate();
        candidate.on_read(Some(held_by(Some("other"), "5")), s(0));
        candidate.on_read(None, s(1));
        assert!(matches!(candidate.decide(s(1)), Decision::Write(_)));
        candidate.on_write(held_by(Some("me"), "6"), s(1), s(2));
        for (second, version) in [(3, "7"), (5, "8"), (7, "9"), (8, "10")] {
            candidate.on_write(held_by(Some("me"), version), s(second), s(second));
            assert!(!candidate.is_leader(s(second)), "{second}");
        }
        assert_eq!(
            candidate.decide(s(8)),
            Decision::Wait(s(1)),
            "leads as soon as the wait ends"
        );
        assert!(candidate.is_leader(s(9)));
    }

    #[test]
    fn an_unanswered_creation_delays_leadership_too() {
        let mut candidate = new_candidate();
        candidate.on_read(None, s(0));
        candidate.on_failure();
        candidate.on_read(Some(held_by(Some("me"), "1")), s(3));
        candidate.on_write(held_by(Some("me"), "2"), s(3), s(3));
        assert!(!candidate.is_leader(s(9)));
        candidate.on_write(held_by(Some("me"), "3"), s(9), s(9));
        assert!(candidate.is_leader(s(10)));
    }

    #[test]
    fn a_candidate_that_is_not_leader_yet_does_not_release() {
        let mut candidate = new_candidate();
        candidate.on_read(None, s(0));
        candidate.on_write(held_by(Some("me"), "1"), s(0), s(0));
        assert_eq!(candidate.release(s(6)), None);
    }

    #[test]
    fn an_unreleased_lease_without_holder_is_treated_like_a_held_one() {
        let mut candidate = new_candidate();
        let cleared = Record {
            released: false,
            ..held_by(None, "5")
        };
        candidate.on_read(Some(cleared.clone()), s(0));
        assert_eq!(candidate.decide(s(0)), Decision::Wait(s(1)));
        candidate.on_read(Some(cleared), s(10));
        assert!(matches!(candidate.decide(s(10)), Decision::Write(_)));
    }

    #[test]
    fn observing_another_holder_ends_leadership() {
        let mut candidate = new_candidate();
        candidate.on_write(held_by(Some("me"), "6"), s(100), s(100));
        candidate.on_read(Some(held_by(Some("other"), "7")), s(101));
        assert!(!candidate.is_leader(s(101)));
    }

    #[test]
    fn leadership_counts_from_the_start_of_the_renewal() {
        let mut candidate = new_candidate();
        candidate.on_write(held_by(Some("me"), "6"), s(100), s(104));
        assert!(candidate.is_leader(s(106)));
        assert!(!candidate.is_leader(s(107)));
    }

    #[test]
    fn a_leader_renews_every_two_seconds() {
        let mut candidate = new_candidate();
        candidate.on_write(held_by(Some("me"), "6"), s(100), s(100));
        assert_eq!(candidate.decide(s(100)), Decision::Wait(s(2)));
        let write = Write {
            replaces: Some("6".into()),
            holder: Some("me".into()),
            transitions: 4,
        };
        assert_eq!(candidate.decide(s(102)), Decision::Write(write));
    }

    #[test]
    fn releasing_ends_leadership_before_the_write_is_sent() {
        let mut candidate = new_candidate();
        candidate.on_write(held_by(Some("me"), "6"), s(100), s(100));
        let release = candidate.release(s(100));
        assert_eq!(
            release,
            Some(Write {
                replaces: Some("6".into()),
                holder: None,
                transitions: 4
            })
        );
        assert!(!candidate.is_leader(s(100)));
        assert_eq!(new_candidate().release(s(100)), None);
    }
}
