//! A member before etcd: the real rules of `crates/member` on a disk of the model. Whole starts at once; all else waits
//! with a report, reads the permit's file, asks the network, and starts when all agree.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_operator_api::contract::{self, Fingerprint, Identity, ListedMember, Permit, Report, Verdict};
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::flags::First;
use etcd_operator_etcd::id::{ClusterId, MemberId, RaftIndex, RaftTerm};
use etcd_operator_etcd::membership::{Member, Membership};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::Dial as _;
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_member::permit::{self, Grant, address_of};
use etcd_operator_member::state::{Source, State};
use etcd_operator_member::verdict::{Expected, judge};
use etcd_operator_member::view::{Data, DiskView, IdentityFile, LogEnd, LogHead, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Machine;
use crate::chance::Chance;
use crate::etcd::{Caller, Content, DataDir, DiskId, Etcds};

/// How often a permit is tried again that is not used yet.
const LOOK: Duration = Duration::from_millis(200);
/// How often a disk that could not be read is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

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

/// A disk as the real rules see it.
pub(crate) fn view(etcds: &Etcds, disk: DiskId, is_weak: bool) -> DiskView {
    let Some(content) = etcds.content(disk).filter(|_| !etcds.is_unreadable(disk)) else {
        return DiskView {
            trouble: Some("cannot read the volume: input/output error".to_owned()),
            ..DiskView::default()
        };
    };
    DiskView {
        trouble: None,
        identity: content
            .identity
            .clone()
            .map_or(IdentityFile::Absent, IdentityFile::Found),
        data: data(content.data.as_ref()),
        prepared: Ok(None),
        restored: Vec::new(),
        fetched: None,
        kept: content.kept.keys().cloned().collect(),
        fingerprint: fingerprint(disk, is_weak),
    }
}

fn fingerprint(disk: DiskId, is_weak: bool) -> Fingerprint {
    use contract::kind;
    let name = format!("{disk:?}");
    let kinds = if is_weak {
        vec![kind::INODE, kind::ROOT]
    } else {
        vec![kind::WWID]
    };
    Fingerprint(
        kinds
            .into_iter()
            .map(|kind| (kind.to_owned(), name.clone()))
            .collect(),
    )
}

fn data(found: Option<&DataDir>) -> Data {
    let Some(found) = found else { return Data::None };
    let Some(head) = found.head() else {
        return Data::Unlogged;
    };
    let broken = || Err("a page of the database is not valid".to_owned());
    Data::Logged(Store {
        head: Ok(LogHead {
            cluster: head.cluster,
            member: head.member,
        }),
        end: Some(LogEnd {
            term: RaftTerm(head.term),
            index: RaftIndex(head.index),
            has_client_entries: head.has_writes,
        }),
        database: if found.is_damaged() { broken() } else { Ok(()) },
        members: found.members().into_iter().map(listed).collect(),
    })
}

fn listed(member: Member) -> ListedMember {
    ListedMember {
        id: member.id.to_string(),
        name: member.name.unwrap_or_default(),
        peer_urls: member.peer_urls.iter().map(ToString::to_string).collect(),
    }
}

/// Starts a disk that is whole, counting the start.
pub(crate) fn attempt(etcds: &Etcds, place: &Place, is_weak: bool) -> Attempt {
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
    Attempt::Starts
}

fn write(etcds: &Etcds, disk: DiskId, identity: Identity) {
    etcds.edit(disk, |content| content.identity = Some(identity));
}

/// Makes of the disk what a permit leads to.
fn commit(etcds: &Etcds, disk: DiskId, grant: &Grant) {
    etcds.edit(disk, |content: &mut Content| {
        if let Some(name) = &grant.set_aside
            && let Some(data) = content.data.take()
        {
            content.kept.insert(name.clone(), data);
        }
        content.identity = Some(grant.identity.clone());
    });
}

impl Waiting {
    pub(crate) fn new(
        place: &Place,
        disk: DiskView,
        boot: Duration,
        start: Instant,
        mut names: Chance,
    ) -> Self {
        let state = within(boot + start.elapsed(), &mut names, |source| {
            State::new(place.expected.clone(), place.pod.clone(), disk, source)
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
    loop {
        let text = file.borrow_and_update().clone();
        if !text.is_empty() {
            match consider(&machine, &place, &waiting, &text).await {
                Ok(first) => return first,
                Err(why) => {
                    if waiting.with(|state, _| state.remark(Some(why.clone()))) {
                        machine.note(&place.expected.member, format_args!("waits: {why}"));
                    }
                }
            }
        }
        let is_blind = waiting.verdict() == Verdict::Unreadable;
        let pause = match (is_blind, text.is_empty()) {
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
    match attempt(machine.etcds(), place, machine.is_weak()) {
        Attempt::Starts => true,
        Attempt::Waits(disk) => {
            waiting.with(|state, _| state.see(*disk));
            false
        }
    }
}

/// Uses the permit if it is a good one. An error says why it is not used yet.
async fn consider(
    machine: &Machine,
    place: &Place,
    waiting: &Waiting,
    text: &str,
) -> Result<Option<First>, String> {
    let permit: Permit = contract::read(text.as_bytes()).map_err(|error| format!("the permit: {error}"))?;
    let ask = || {
        let asked = waiting.with(|state, source| state.ask(&permit, source));
        asked.map_err(|refusal| format!("the permit is refused: {refusal}"))
    };
    let grant = ask()?;
    prepare(machine, place, &grant)
        .await
        .map_err(|why| format!("the permit waits: {why}"))?;
    let grant = ask()?;
    if machine.etcds().is_full(place.disk) {
        return Err("the permit waits: no space left on device".to_owned());
    }
    commit(machine.etcds(), place.disk, &grant);
    machine.note(
        &place.expected.member,
        format_args!("uses its permit to {:?}", permit.mode),
    );
    Ok(grant.first)
}

/// What must hold outside before a first start.
async fn prepare(machine: &Machine, place: &Place, grant: &Grant) -> Result<(), String> {
    let Some(first) = &grant.first else {
        return Ok(());
    };
    if !machine.resolves(&place.service) {
        return Err("its own name does not resolve".to_owned());
    }
    let Some(who) = grant.unstarted else {
        return Ok(());
    };
    let own = address_of(first, &place.expected.member);
    let mut reasons = Vec::new();
    for (_, peer) in first
        .members
        .iter()
        .filter(|(name, _)| *name != place.expected.member)
    {
        match ask_one(machine, place, peer, who, own).await {
            Answer::Unstarted => return Ok(()),
            Answer::No(why) => return Err(why),
            Answer::Unknown(why) => reasons.push(why),
        }
    }
    Err(reasons.join("; "))
}

/// What another member says of one that is about to join.
enum Answer {
    Unstarted,
    No(String),
    Unknown(String),
}

async fn ask_one(
    machine: &Machine,
    place: &Place,
    peer: &PeerUrl,
    who: (ClusterId, MemberId),
    own: Option<&PeerUrl>,
) -> Answer {
    let caller = Caller {
        labels: place.labels.clone(),
        ..Caller::free(&place.expected.member)
    };
    let url = format!("http://{}:2379", peer.host())
        .parse()
        .expect("a host is part of a URL");
    let endpoint = Endpoint {
        url,
        tls: None,
        limits: Limits::default(),
    };
    let dialer = machine.etcds().dialer(caller);
    let why = match dialer.dial(&endpoint).await {
        Ok(port) => match port.membership().await {
            Membership::Known(known) if known.cluster != who.0 => {
                return Answer::No(format!(
                    "{peer} is of cluster {}, not of {}",
                    known.cluster, who.0
                ));
            }
            Membership::Known(known) => return known_as(known.members.get(&who.1), who.1, own),
            Membership::Unknown(why) => why.to_string(),
        },
        Err(error) => error.to_string(),
    };
    // Before there were learners a member joined with a vote, and without it there may be no quorum to ask.
    match dialer.ask_as_peer(peer, Duration::from_secs(2)).await {
        Ok(told) if told.cluster == who.0 && !Feature::Learners.is_in(&told.version) => {
            known_as(told.members.get(&who.1), who.1, own)
        }
        _ => Answer::Unknown(why),
    }
}

fn known_as(member: Option<&Member>, id: MemberId, own: Option<&PeerUrl>) -> Answer {
    match (member, own) {
        (None, _) => Answer::No(format!("member {id} is not among the members")),
        (Some(member), _) if member.has_started() => Answer::No(format!("member {id} has started before")),
        (Some(member), Some(own)) if !member.is_at(own) => {
            Answer::No(format!("member {id} is not expected at {own}"))
        }
        (Some(_), _) => Answer::Unstarted,
    }
}
