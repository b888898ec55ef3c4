//! A member before etcd: the real rules of `crates/member` on a disk of the model. Whole starts at once; all else waits
//! with a report, reads the permit's file, asks the network, and starts when all agree.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_operator_api::contract::{
    self, Mode, Permit, PrepareFailure, Preparing, RefusedImage, Report, Verdict,
};
use etcd_operator_etcd::flags::First;
use etcd_operator_member::permit;
use etcd_operator_member::state::{Source, State};
use etcd_operator_member::verdict::{Expected, judge};
use etcd_operator_member::view::DiskView;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Machine;
use super::content::{begin_restored, commit, end_restored, tidy, view, write};
use super::peers::are_ready;
use crate::chance::Chance;
use crate::etcd::DiskId;

/// How often a permit is tried again that is not used yet.
const LOOK: Duration = Duration::from_millis(200);
/// How often a disk that could not be read is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long etcd's tool takes.
const RESTORING: Duration = Duration::from_secs(2);

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static NAMES: RefCell<Chance> = RefCell::new(Chance::new(0));
}

/// Time and chance as the real rules take them: by plain functions.
const SOURCE: Source = Source {
    now: || NOW.get(),
    draw: || NAMES.with_borrow_mut(|names| format!("{:016x}", names.bits())),
};

/// A member that waits.
pub(crate) struct Waiting {
    inner: Mutex<Inner>,
    /// What the node's clock since boot said at `start`.
    boot: Duration,
    start: Instant,
}

struct Inner {
    state: State,
    names: Chance,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

/// What a member is and where it starts.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The UID of its pod.
    pub(crate) pod: String,
    /// By what the network may cut it off.
    pub(crate) labels: Vec<String>,
    pub(crate) disk: DiskId,
    pub(crate) expected: Expected,
    /// The Service by which its name resolves: namespace and name.
    pub(crate) service: (String, String),
}

/// Whether a disk starts by itself.
pub(crate) enum Attempt {
    Starts,
    Waits(Box<DiskView>),
}

/// Starts a disk that is whole, counting the start.
pub(crate) fn attempt(machine: &Machine, place: &Place, is_weak: bool) -> Attempt {
    let etcds = machine.etcds();
    let disk = view(etcds, place.disk, is_weak);
    let head = disk.store().and_then(|store| store.whole().ok());
    let found = (
        judge(&disk, &place.expected).is_whole(),
        disk.identity.found(),
        head,
    );
    let (true, Some(identity), Some(head)) = found else {
        return Attempt::Waits(Box::new(disk));
    };
    let next = permit::restart(identity, head, &disk.fingerprint);
    if !etcds.is_full(place.disk) {
        write(etcds, place.disk, next);
    }
    tidy(etcds, place.disk, machine.wall());
    Attempt::Starts
}

impl Waiting {
    pub(crate) fn new(
        place: &Place,
        (disk, refused): (DiskView, Option<RefusedImage>),
        boot: Duration,
        start: Instant,
        mut names: Chance,
    ) -> Self {
        let state = within(boot + start.elapsed(), &mut names, |source| {
            let state = State::new(place.expected.clone(), place.pod.clone(), disk, source);
            state.with_refused_image(refused)
        });
        Self {
            inner: Mutex::new(Inner { state, names }),
            boot,
            start,
        }
    }

    /// Does something with the state at this moment of the node's own clock.
    fn with<T>(&self, run: impl FnOnce(&mut State, Source) -> T) -> T {
        let mut inner: MutexGuard<'_, Inner> = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { state, names } = &mut *inner;
        within(self.boot + self.start.elapsed(), names, |source| {
            run(state, source)
        })
    }

    /// What is told to whoever asks.
    pub(crate) fn report(&self) -> Report {
        self.with(State::report)
    }

    fn verdict(&self) -> Verdict {
        self.with(|state, _| state.finding().verdict.clone())
    }
}

fn within<T>(now: Duration, names: &mut Chance, run: impl FnOnce(Source) -> T) -> T {
    NOW.set(now);
    NAMES.replace(names.split());
    run(SOURCE)
}

/// Waits until the member may start, and with what.
pub(crate) async fn wait(
    machine: Machine,
    place: Place,
    waiting: Arc<Waiting>,
    mut file: watch::Receiver<String>,
) -> Option<First> {
    if waiting.with(|state, _| state.refuses_image()) {
        return std::future::pending().await;
    }
    loop {
        let text = file.borrow_and_update().clone();
        let mut is_used = text.is_empty();
        if !text.is_empty() {
            match consider(&machine, &place, &waiting, &text).await {
                Ok(Some(first)) => return first,
                Ok(None) => is_used = true,
                Err(why) => {
                    if waiting.with(|state, _| state.remark(Some(why.clone()))) {
                        machine.note(&place.expected.member, format_args!("waits: {why}"));
                    }
                }
            }
        }
        let is_blind = waiting.verdict() == Verdict::Unreadable;
        let pause = match (is_blind, is_used) {
            (true, _) => LOOK_AGAIN,
            (false, false) => LOOK,
            (false, true) => Duration::MAX,
        };
        tokio::select! {
            biased;
            changed = file.changed() => {
                if changed.is_err() {
                    return std::future::pending().await;
                }
            }
            () = tokio::time::sleep(pause), if pause < Duration::MAX => {}
        }
        if is_blind && looks_whole(&machine, &place, &waiting) {
            return None;
        }
    }
}

/// Looks at the disk again; whether it starts by itself by now.
fn looks_whole(machine: &Machine, place: &Place, waiting: &Waiting) -> bool {
    match attempt(machine, place, machine.is_weak()) {
        Attempt::Starts => true,
        Attempt::Waits(disk) => {
            waiting.with(|state, _| state.see(*disk));
            false
        }
    }
}

/// What a start is told, where there is one.
type Started = Option<Option<First>>;

/// Uses the permit if it is a good one. An error says why it is not used yet.
async fn consider(
    machine: &Machine,
    place: &Place,
    waiting: &Waiting,
    text: &str,
) -> Result<Started, String> {
    let permit: Permit = contract::read(text.as_bytes()).map_err(|error| format!("the permit: {error}"))?;
    if permit.mode == Mode::Prepare {
        return make(machine, place, waiting, &permit).await;
    }
    let ask = || {
        let asked = waiting.with(|state, source| state.ask(&permit, source));
        asked.map_err(|refusal| format!("the permit is refused: {refusal}"))
    };
    let grant = ask()?;
    are_ready(machine, place, &grant)
        .await
        .map_err(|why| format!("the permit waits: {why}"))?;
    let grant = ask()?;
    if machine.etcds().is_full(place.disk) {
        return Err("the permit waits: no space left on device".to_owned());
    }
    let name = &place.expected.member;
    let steps = machine.steps_to_live(name);
    let upto = steps.unwrap_or(usize::MAX);
    if let Err(why) = commit(machine.etcds(), place.disk, &grant, machine.wall(), upto) {
        if looks_whole(machine, place, waiting) {
            return Ok(Some(None));
        }
        return Err(format!("the permit waits: {why}"));
    }
    if let Some(steps) = steps {
        machine.note(
            name,
            format_args!("dies after {steps} steps of its permit to {:?}", permit.mode),
        );
        machine.died(&place.pod);
        return std::future::pending().await;
    }
    machine.note(name, format_args!("uses its permit to {:?}", permit.mode));
    Ok(Some(grant.first))
}

/// Makes a restored directory beside the data, and goes on waiting, whatever comes of it.
async fn make(
    machine: &Machine,
    place: &Place,
    waiting: &Waiting,
    permit: &Permit,
) -> Result<Started, String> {
    let asked = waiting.with(|state, source| state.ask_to_prepare(permit, source));
    let Some(preparation) = asked.map_err(|refusal| format!("the permit is refused: {refusal}"))? else {
        return Ok(None);
    };
    let etcds = machine.etcds();
    begin_restored(etcds, place.disk, &preparation);
    tokio::time::sleep(RESTORING).await;
    let made = if etcds.is_full(place.disk) {
        Err(("NoRoom", "no space left on device".to_owned(), true))
    } else {
        end_restored(etcds, place.disk, &preparation).map_err(|why| ("ToolFailed", why, false))
    };
    let failed = made.err().map(|(reason, message, retriable)| Preparing {
        restore_uid: preparation.restore_uid.clone(),
        failure: Some(PrepareFailure {
            reason: reason.to_owned(),
            message,
            retriable,
        }),
    });
    machine.note(
        &place.expected.member,
        match &failed {
            None => "has the restored data beside its own",
            Some(_) => "cannot restore",
        },
    );
    waiting.with(|state, _| state.prepared(failed));
    Ok(looks_whole(machine, place, waiting).then_some(None))
}
