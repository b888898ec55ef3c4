//! Leadership as every writer sees it, and the permit without which nothing is written.
//!
//! Leading is a time, not a flag: it ends by itself when the lease was not renewed. A process that was stopped for
//! longer than its lease finds, when it goes on, that the monotonic clock has moved past that time and gets no permit.
//! No write may reach the API server without one, the lease itself aside.

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

/// Why a write was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead")]
pub struct NotLeading;

impl Classified for NotLeading {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn reason(&self) -> &'static str {
        "NotLeading"
    }
}

/// Proof that this process led a moment ago; good for one write.
#[derive(Debug)]
#[must_use = "a permit is for the write that follows at once"]
pub struct WritePermit {
    leadership: Leadership,
}

impl WritePermit {
    /// Carries the write out, looking at the clock again before every step of it: a call that still waits for a
    /// connection when leadership ends, or a process that was stopped meanwhile, sends nothing any more. After
    /// [`NotLeading`] the write may have happened before the end.
    pub async fn spend<T>(self, write: impl Future<Output = T>) -> Result<T, NotLeading> {
        let mut write = pin!(write);
        poll_fn(|context| {
            if self.leadership.leads() {
                write.as_mut().poll(context).map(Ok)
            } else {
                Poll::Ready(Err(NotLeading))
            }
        })
        .await
    }
}

/// The readers' side: may this process write?
#[derive(Clone, Debug)]
pub struct Leadership {
    clock: SharedClock,
    term: Arc<watch::Sender<Term>>,
    trouble: Arc<Mutex<Option<String>>>,
}

/// The writers' side, held by whoever renews the lease.
#[derive(Debug)]
pub struct Tenure {
    leadership: Leadership,
}

impl Leadership {
    /// A standby, and the handle that makes it lead.
    pub fn standby(clock: SharedClock) -> (Self, Tenure) {
        let leadership = Self {
            clock,
            term: Arc::new(watch::Sender::new(Term::Standby)),
            trouble: Arc::default(),
        };
        (leadership.clone(), Tenure { leadership })
    }

    /// Leading for good: for a single process without election.
    pub fn always(clock: SharedClock) -> Self {
        Self {
            clock,
            term: Arc::new(watch::Sender::new(Term::Always)),
            trouble: Arc::default(),
        }
    }

    /// Whether this process leads at this very moment.
    pub fn leads(&self) -> bool {
        match *self.term.borrow() {
            Term::Standby => false,
            Term::Until(end) => self.clock.elapsed() < end,
            Term::Always => true,
        }
    }

    /// Asked immediately before every write.
    pub fn permit(&self) -> Result<WritePermit, NotLeading> {
        if self.leads() {
            Ok(WritePermit {
                leadership: self.clone(),
            })
        } else {
            Err(NotLeading)
        }
    }

    /// What keeps the lease out of reach at the moment, in words.
    pub fn trouble(&self) -> Option<String> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A watch that wakes when leading begins or ends by word (not when it runs out: ask [`leads`](Self::leads)).
    pub fn turns(&self) -> Turns {
        Turns {
            receiver: self.term.subscribe(),
        }
    }
}

/// Wakes its holder when leadership is granted or given up.
#[derive(Debug)]
pub struct Turns {
    receiver: watch::Receiver<Term>,
}

impl Turns {
    /// Waits for the next grant or loss.
    pub async fn next(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Tenure {
    /// Leading until this monotonic time.
    pub fn lead_until(&self, end: Duration) {
        self.leadership.term.send_if_modified(|term| {
            let begins = *term == Term::Standby;
            *term = Term::Until(end);
            begins
        });
    }

    /// Not leading from now on.
    pub fn stand_by(&self) {
        self.leadership
            .term
            .send_if_modified(|term| std::mem::replace(term, Term::Standby) != Term::Standby);
    }

    /// Notes what keeps the lease out of reach, or that nothing does; returns whether that is news.
    pub fn trouble(&self, trouble: Option<String>) -> bool {
        let mut noted = self
            .leadership
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let news = *noted != trouble;
        *noted = trouble;
        news
    }

    /// The readers' side.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        // Nobody would renew any more.
        self.stand_by();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_slept_through_its_lease_gets_no_permit() {
        let clock = TestClock::shared();
        let (leadership, tenure) = Leadership::standby(clock.clone());
        assert_eq!(leadership.permit().err(), Some(NotLeading));
        tenure.lead_until(clock.elapsed() + Duration::from_secs(7));
        assert!(leadership.permit().is_ok());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(leadership.permit().err(), Some(NotLeading));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_still_waits_when_leadership_ends_is_not_sent() {
        let (leadership, tenure) = Leadership::standby(TestClock::shared());
        tenure.lead_until(Duration::from_secs(7));
        let mut sent = false;
        let write = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            sent = true;
        };
        assert_eq!(leadership.permit().unwrap().spend(write).await, Err(NotLeading));
        assert!(!sent);
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_when_nobody_is_left_to_renew_it() {
        let (leadership, tenure) = Leadership::standby(TestClock::shared());
        tenure.lead_until(Duration::from_secs(100));
        drop(tenure);
        assert!(!leadership.leads());
    }

    #[tokio::test(start_paused = true)]
    async fn renewing_wakes_nobody() {
        let (leadership, tenure) = Leadership::standby(TestClock::shared());
        let mut turns = leadership.turns();
        tenure.lead_until(Duration::from_secs(7));
        turns.next().await;
        tenure.lead_until(Duration::from_secs(9));
        assert!(
            tokio::time::timeout(Duration::from_secs(1), turns.next())
                .await
                .is_err()
        );
        tenure.stand_by();
        turns.next().await;
    }
}
