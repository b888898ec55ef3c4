//! A backend that injects faults around another backend. For stores without a server that could fail, and for
//! tests of callers of a store.

use std::sync::Mutex;

use bytes::Bytes;
use futures::future;

use super::faults::{InjectedFault, Occurrence, UploadPhase};
use crate::backend::{
    Backend, BackendFuture, ByteRange, Etag, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use crate::error::{Class, Fault};
use crate::key::Key;

/// A backend that injects faults into another backend.
#[derive(Debug)]
pub struct FaultInjector<P> {
    inner: P,
    plan: Mutex<FaultPlan>,
}

#[derive(Debug, Default)]
struct FaultPlan {
    fault: Option<(UploadPhase, InjectedFault, Occurrence)>,
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

impl<P: Backend> FaultInjector<P> {
    /// Wraps a backend. No faults are injected yet.
    pub fn new(inner: P) -> Self {
        Self {
            inner,
            plan: Mutex::new(FaultPlan::default()),
        }
    }

    /// Injects this fault in this phase from now on.
    pub fn plan(&self, phase: UploadPhase, fault: InjectedFault, times: Occurrence) {
        *self.lock() = FaultPlan {
            fault: Some((phase, fault, times)),
            ..FaultPlan::default()
        };
    }

    /// Stops injecting faults.
    pub fn clear(&self) {
        self.lock().fault = None;
    }

    /// How many faults were injected since the last call of `plan`.
    pub fn injected_count(&self) -> usize {
        self.lock().injected
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FaultPlan> {
        self.plan.lock().expect("the mutex is not poisoned")
    }

    fn next_action(&self, is_due: impl Fn(UploadPhase, bool) -> bool) -> Action {
        let mut plan = self.lock();
        let Some((phase, fault, times)) = plan.fault else {
            return Action::Forward;
        };
        if !is_due(phase, plan.is_completed) || (times == Occurrence::Once && plan.injected > 0) {
            return Action::Forward;
        }
        plan.injected += 1;
        let class = match fault {
            InjectedFault::Slow => return Action::Stall,
            InjectedFault::LostAnswer => return Action::DropResponse,
            InjectedFault::Internal | InjectedFault::Broken => Class::Transient,
            InjectedFault::Throttled => Class::Throttled,
            InjectedFault::Expired => Class::Credentials,
            InjectedFault::WrongRegion => Class::WrongRegion,
            InjectedFault::Forbidden => Class::Forbidden,
            InjectedFault::NoBucket => Class::NoBucket,
            InjectedFault::Full => Class::Full,
        };
        Action::Fail(Fault::new(class, format!("{fault:?} by plan")))
    }
}

/// Executes, fails or delays a request.
fn apply<'a, T: Send + 'a>(action: Action, inner: BackendFuture<'a, T>) -> BackendFuture<'a, T> {
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

impl<P: Backend> Backend for FaultInjector<P> {
    fn location(&self) -> &StoreLocation {
        self.inner.location()
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId> {
        let action = self.next_action(|phase, _| phase == UploadPhase::Begin);
        apply(action, self.inner.begin(key, mark))
    }

    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part> {
        let action = self.next_action(|phase, _| match phase {
            UploadPhase::FirstPart => number == 1,
            UploadPhase::LastPart(last) => number == last,
            _ => false,
        });
        apply(action, self.inner.upload_part(target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()> {
        let action = self.next_action(|phase, _| phase == UploadPhase::Complete);
        let completed = apply(action, self.inner.complete(target, parts));
        Box::pin(async move {
            let done = completed.await;
            if done.is_ok() {
                self.lock().is_completed = true;
            }
            done
        })
    }

    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()> {
        self.inner.abort(target)
    }

    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata> {
        let action =
            self.next_action(|phase, is_completed| phase == UploadPhase::AfterComplete && is_completed);
        apply(action, self.inner.head(key))
    }

    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody> {
        self.inner.read(key, range, etag)
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>> {
        self.inner.list(prefix, page)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()> {
        self.inner.delete(key)
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()> {
        self.inner.create(key, body)
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>> {
        self.inner.list_uploads(prefix, page)
    }
}
