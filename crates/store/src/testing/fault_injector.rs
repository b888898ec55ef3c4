//! A backend that injects faults around another backend. For stores without a server that could fail, and for
//! tests of callers of a store.

use std::sync::Mutex;

use bytes::Bytes;
use futures::future;

use super::faults::{Harm, Phase, Times};
use crate::error::{Class, Fault};
use crate::key::Key;
use crate::port::{
    Answer, Begun, Entry, Etag, Mark, Meta, Page, Part, Place, Port, Reading, Span, Target, UploadId,
};

/// A backend that injects faults into another backend.
#[derive(Debug)]
pub struct Faulty<P> {
    inner: P,
    plan: Mutex<FaultPlan>,
}

#[derive(Debug, Default)]
struct FaultPlan {
    fault: Option<(Phase, Harm, Times)>,
    is_completed: bool,
    injected: usize,
}

/// What happens to one request.
enum Action {
    Forward,
    Fail(Fault),
    Stall,
    /// Executes the request and discards its response.
    DropResponse,
}

impl<P: Port> Faulty<P> {
    /// Wraps a backend. No faults are injected yet.
    pub fn new(inner: P) -> Self {
        Self {
            inner,
            plan: Mutex::new(FaultPlan::default()),
        }
    }

    /// Injects this fault in this phase from now on.
    pub fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        *self.lock() = FaultPlan {
            fault: Some((phase, harm, times)),
            ..FaultPlan::default()
        };
    }

    /// Stops injecting faults.
    pub fn calm(&self) {
        self.lock().fault = None;
    }

    /// How many faults were injected since the last call of `plan`.
    pub fn happened(&self) -> usize {
        self.lock().injected
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FaultPlan> {
        self.plan.lock().expect("the mutex is not poisoned")
    }

    fn next_action(&self, is_due: impl Fn(Phase, bool) -> bool) -> Action {
        let mut plan = self.lock();
        let Some((phase, harm, times)) = plan.fault else {
            return Action::Forward;
        };
        if !is_due(phase, plan.is_completed) || (times == Times::Once && plan.injected > 0) {
            return Action::Forward;
        }
        plan.injected += 1;
        let class = match harm {
            Harm::Slow => return Action::Stall,
            Harm::LostAnswer => return Action::DropResponse,
            Harm::Internal | Harm::Broken => Class::Transient,
            Harm::Throttled => Class::Throttled,
            Harm::Expired => Class::Credentials,
            Harm::WrongRegion => Class::WrongRegion,
            Harm::Forbidden => Class::Forbidden,
            Harm::NoBucket => Class::NoBucket,
            Harm::Full => Class::Full,
        };
        Action::Fail(Fault::new(class, format!("{harm:?} by plan")))
    }
}

/// Executes, fails or delays a request.
fn apply<'a, T: Send + 'a>(action: Action, inner: Answer<'a, T>) -> Answer<'a, T> {
    match action {
        Action::Forward => inner,
        Action::Fail(fault) => Box::pin(future::ready(Err(fault))),
        Action::Stall => Box::pin(future::pending()),
        Action::DropResponse => Box::pin(async move {
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
        let action = self.next_action(|phase, _| phase == Phase::Begin);
        apply(action, self.inner.begin(key, mark))
    }

    fn part<'a>(&'a self, target: &'a Target, number: u32, body: Bytes) -> Answer<'a, Part> {
        let action = self.next_action(|phase, _| match phase {
            Phase::FirstPart => number == 1,
            Phase::LastPart(last) => number == last,
            _ => false,
        });
        apply(action, self.inner.part(target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a Target, parts: &'a [Part]) -> Answer<'a, ()> {
        let action = self.next_action(|phase, _| phase == Phase::Complete);
        let completed = apply(action, self.inner.complete(target, parts));
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
        let action = self.next_action(|phase, is_completed| phase == Phase::AfterComplete && is_completed);
        apply(action, self.inner.head(key))
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
