//! A port that fails when it is told to, around one that works. For stores that have no server which could be broken,
//! and for tests of whatever uses a store.

use std::sync::Mutex;

use bytes::Bytes;
use futures::future;

use super::harm::{Harm, Phase, Times};
use crate::error::{Class, Fault};
use crate::key::Key;
use crate::port::{
    Answer, Begun, Entry, Etag, Mark, Meta, Page, Part, Place, Port, Reading, Span, Target, UploadId,
};

/// A port around another.
#[derive(Debug)]
pub struct Faulty<P> {
    inner: P,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    planned: Option<(Phase, Harm, Times)>,
    is_completed: bool,
    happened: usize,
}

/// What to do instead of only passing a request on.
enum Turn {
    Pass,
    Fail(Fault),
    Stall,
    /// Pass it on and fail after it.
    Lose,
}

impl<P: Port> Faulty<P> {
    /// A port that fails nowhere yet.
    pub fn new(inner: P) -> Self {
        Self {
            inner,
            plan: Mutex::new(Plan::default()),
        }
    }

    /// From now on this goes wrong then.
    pub fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        *self.lock() = Plan {
            planned: Some((phase, harm, times)),
            ..Plan::default()
        };
    }

    /// From now on nothing goes wrong.
    pub fn calm(&self) {
        self.lock().planned = None;
    }

    /// How often something went wrong since it was planned.
    pub fn happened(&self) -> usize {
        self.lock().happened
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan
            .lock()
            .expect("no test panics with the plan in its hands")
    }

    fn turn(&self, is_now: impl Fn(Phase, bool) -> bool) -> Turn {
        let mut plan = self.lock();
        let Some((phase, harm, times)) = plan.planned else {
            return Turn::Pass;
        };
        if !is_now(phase, plan.is_completed) || (times == Times::Once && plan.happened > 0) {
            return Turn::Pass;
        }
        plan.happened += 1;
        let class = match harm {
            Harm::Slow => return Turn::Stall,
            Harm::LostAnswer => return Turn::Lose,
            Harm::Internal | Harm::Broken => Class::Transient,
            Harm::Throttled => Class::Throttled,
            Harm::Expired => Class::Credentials,
            Harm::WrongRegion => Class::WrongRegion,
            Harm::Forbidden => Class::Forbidden,
            Harm::NoBucket => Class::NoBucket,
            Harm::Full => Class::Full,
        };
        Turn::Fail(Fault::new(class, format!("{harm:?} by plan")))
    }
}

/// What becomes of a request.
fn through<'a, T: Send + 'a>(turn: Turn, inner: Answer<'a, T>) -> Answer<'a, T> {
    match turn {
        Turn::Pass => inner,
        Turn::Fail(fault) => Box::pin(future::ready(Err(fault))),
        Turn::Stall => Box::pin(future::pending()),
        Turn::Lose => Box::pin(async move {
            inner.await?;
            Err(Fault::new(Class::Transient, "the answer is lost by plan"))
        }),
    }
}

impl<P: Port> Port for Faulty<P> {
    fn place(&self) -> &Place {
        self.inner.place()
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a Mark) -> Answer<'a, UploadId> {
        let turn = self.turn(|phase, _| phase == Phase::Begin);
        through(turn, self.inner.begin(key, mark))
    }

    fn part<'a>(&'a self, target: &'a Target, number: u32, body: Bytes) -> Answer<'a, Part> {
        let turn = self.turn(|phase, _| match phase {
            Phase::FirstPart => number == 1,
            Phase::LastPart(last) => number == last,
            _ => false,
        });
        through(turn, self.inner.part(target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a Target, parts: &'a [Part]) -> Answer<'a, ()> {
        let turn = self.turn(|phase, _| phase == Phase::Complete);
        let completed = through(turn, self.inner.complete(target, parts));
        Box::pin(async move {
            let done = completed.await;
            if done.is_ok() {
                self.lock().is_completed = true;
            }
            done
        })
    }

    fn abort<'a>(&'a self, target: &'a Target) -> Answer<'a, ()> {
        self.inner.abort(target)
    }

    fn head<'a>(&'a self, key: &'a Key) -> Answer<'a, Meta> {
        let turn = self.turn(|phase, is_completed| phase == Phase::AfterComplete && is_completed);
        through(turn, self.inner.head(key))
    }

    fn read<'a>(&'a self, key: &'a Key, span: Span, etag: Option<&'a Etag>) -> Answer<'a, Reading> {
        self.inner.read(key, span, etag)
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Entry>> {
        self.inner.list(prefix, page)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        self.inner.delete(key)
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> Answer<'a, ()> {
        self.inner.create(key, body)
    }

    fn begun<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Begun>> {
        self.inner.begun(prefix, page)
    }
}
