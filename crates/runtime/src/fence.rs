//! Leadership of this process, and the permit that every write needs.
//!
//! Leadership is a deadline, not a flag: it ends by itself unless the lease is renewed. A process that was stopped for
//! longer than its lease finds that the monotonic clock has passed the deadline, and gets no permit. Every write to the
//! API server needs a permit, except for the lease itself.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::SharedClock;
use crate::error::{Class, Classified};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Standby,
    Until(Duration),
    Always,
}

/// This process is not the leader. If [`Leadership::permit`] returns it, nothing was sent. If [`WritePermit::spend`]
/// does, the write may have happened before leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process is not the leader")]
pub struct NotLeading;

impl Classified for NotLeading {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn reason(&self) -> &'static str {
        "NotLeading"
    }
}

/// Proof that this process was the leader when the permit was issued; valid for one write.
#[derive(Debug)]
#[must_use = "a permit is only valid for the write that follows immediately"]
pub struct WritePermit {
    leadership: Leadership,
}

impl WritePermit {
    /// Runs a write, and checks leadership before every poll of it. A call that still waits for a connection when
    /// leadership ends is not sent, also when the process was stopped meanwhile.
    ///
    /// What the connection has already taken over, its own task may still send. Writes to the API server therefore name
    /// the resourceVersion they were decided on, and calls to etcd name the member ID or the URL they are about.
    /// After [`NotLeading`] the write may have happened before leadership ended.
    pub async fn spend<T>(self, write: impl Future<Output = T>) -> Result<T, NotLeading> {
        let mut write = pin!(write);
        poll_fn(|context| {
            if self.leadership.is_leader() {
                write.as_mut().poll(context).map(Ok)
            } else {
                Poll::Ready(Err(NotLeading))
            }
        })
        .await
    }
}

/// Tells whether this process may write; cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    clock: SharedClock,
    term: Arc<watch::Sender<Term>>,
    lease_problem: Arc<Mutex<Option<String>>>,
}

/// Grants and ends leadership; held by the task that renews the lease.
#[derive(Debug)]
pub struct LeadershipControl {
    leadership: Leadership,
}

impl Leadership {
    /// A standby, and the handle that makes it the leader.
    pub fn standby(clock: SharedClock) -> (Self, LeadershipControl) {
        let leadership = Self {
            clock,
            term: Arc::new(watch::Sender::new(Term::Standby)),
            lease_problem: Arc::default(),
        };
        (leadership.clone(), LeadershipControl { leadership })
    }

    /// Permanent leadership, for a single process without leader election.
    pub fn always(clock: SharedClock) -> Self {
        Self {
            clock,
            term: Arc::new(watch::Sender::new(Term::Always)),
            lease_problem: Arc::default(),
        }
    }

    /// The clock by which leadership expires.
    pub(crate) fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock)
    }

    /// Whether this process is the leader now.
    pub fn is_leader(&self) -> bool {
        match *self.term.borrow() {
            Term::Standby => false,
            Term::Until(end) => self.clock.elapsed() < end,
            Term::Always => true,
        }
    }

    /// Issues a permit. Call it immediately before a write.
    pub fn permit(&self) -> Result<WritePermit, NotLeading> {
        if self.is_leader() {
            Ok(WritePermit {
                leadership: self.clone(),
            })
        } else {
            Err(NotLeading)
        }
    }

    /// Why the lease cannot be read or written at the moment.
    pub fn lease_problem(&self) -> Option<String> {
        self.lease_problem
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notifications when leadership is granted or given up, but not when it expires; for that, see
    /// [`is_leader`](Self::is_leader).
    pub fn changes(&self) -> LeadershipChanges {
        LeadershipChanges {
            receiver: self.term.subscribe(),
        }
    }
}

/// Notifications about granted or given up leadership.
#[derive(Debug)]
pub struct LeadershipChanges {
    receiver: watch::Receiver<Term>,
}

impl LeadershipChanges {
    /// Waits until leadership is granted or given up.
    pub async fn next(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl LeadershipControl {
    /// Grants leadership until this monotonic time. Notifies if this process was not the leader, also because its
    /// leadership had expired.
    pub fn lead_until(&self, end: Duration) {
        let now = self.leadership.clock.elapsed();
        self.leadership.term.send_if_modified(|term| {
            let begins = match *term {
                Term::Standby => true,
                Term::Until(expired) => expired <= now,
                Term::Always => false,
            };
            *term = Term::Until(end);
            begins
        });
    }

    /// Ends leadership now.
    pub fn stand_by(&self) {
        self.leadership
            .term
            .send_if_modified(|term| std::mem::replace(term, Term::Standby) != Term::Standby);
    }

    /// Sets why the lease cannot be read or written, or `None`. Returns whether that changed.
    pub fn set_lease_problem(&self, problem: Option<String>) -> bool {
        let mut current = self
            .leadership
            .lease_problem
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_changed = *current != problem;
        *current = problem;
        is_changed
    }

    /// The leadership that this handle controls.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }
}

impl Drop for LeadershipControl {
    fn drop(&mut self) {
        // Without this handle nothing renews the lease.
        self.stand_by();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_was_stopped_beyond_its_lease_gets_no_permit() {
        let clock = TestClock::shared();
        let (leadership, control) = Leadership::standby(clock.clone());
        assert_eq!(leadership.permit().err(), Some(NotLeading));
        control.lead_until(clock.elapsed() + Duration::from_secs(7));
        assert!(leadership.permit().is_ok());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(leadership.permit().err(), Some(NotLeading));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_still_waits_when_leadership_ends_is_not_sent() {
        let (leadership, control) = Leadership::standby(TestClock::shared());
        control.lead_until(Duration::from_secs(7));
        let mut sent = false;
        let write = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            sent = true;
        };
        assert_eq!(leadership.permit().unwrap().spend(write).await, Err(NotLeading));
        assert!(!sent);
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_when_its_control_handle_is_dropped() {
        let (leadership, control) = Leadership::standby(TestClock::shared());
        control.lead_until(Duration::from_secs(100));
        drop(control);
        assert!(!leadership.is_leader());
    }

    #[tokio::test(start_paused = true)]
    async fn renewing_sends_no_notification() {
        let (leadership, control) = Leadership::standby(TestClock::shared());
        let mut changes = leadership.changes();
        control.lead_until(Duration::from_secs(7));
        changes.next().await;
        control.lead_until(Duration::from_secs(9));
        assert!(
            tokio::time::timeout(Duration::from_secs(1), changes.next())
                .await
                .is_err()
        );
        control.stand_by();
        changes.next().await;
    }

    #[tokio::test(start_paused = true)]
    async fn renewing_an_expired_leadership_sends_a_notification() {
        let (leadership, control) = Leadership::standby(TestClock::shared());
        control.lead_until(Duration::from_secs(7));
        let mut changes = leadership.changes();
        tokio::time::advance(Duration::from_secs(8)).await;
        control.lead_until(Duration::from_secs(20));
        let notified = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
        assert!(notified.is_ok());
    }
}
