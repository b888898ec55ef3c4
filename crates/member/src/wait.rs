//! Waiting for a permit: listening, reading the permit's file, asking the network, and starting when all agree. It
//! returns when there is nothing to wait for: the disk may start, or the pod ends.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_operator_api::contract::{self, Mode, Permit, Preparing, Verdict};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::Start;
use crate::fingerprint::Surroundings;
use crate::keeper::Keeper;
use crate::peers::{self, Answer, Door};
use crate::permit::{Grant, address_of};
use crate::restart::{self, Attempt};
use crate::serve::{self, Shared, with};
use crate::state::{Source, State};
use crate::volume::Volume;
use crate::{clock, side};

/// How often the permit's file is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often at least, when what it needs besides is waited for.
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How often a disk that could not be read is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long until a port is tried again that something else still has.
const BIND_AGAIN: Duration = Duration::from_millis(500);
/// No permit is longer.
const LONGEST: u64 = 1 << 18;

/// What waiting needs to know.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Where the disk is.
    pub volume: Volume,
    /// Where the kernel tells about it.
    pub surroundings: Surroundings,
    /// Where a permit appears.
    pub permit: PathBuf,
    /// The address of the pod, if it is known.
    pub pod_ip: Option<IpAddr>,
    /// Where the report is served.
    pub report_port: u16,
    /// Where members are turned away.
    pub peer_port: u16,
    /// How the other members answer.
    pub door: Door,
    /// Time and chance.
    pub source: Source,
    /// etcd, beside which the program is that restores.
    pub program: PathBuf,
}

/// How waiting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// etcd starts on this.
    Starts(Start),
    /// The pod ends.
    Told,
}

/// Waits.
pub async fn wait(waiting: &Waiting, state: State) -> std::io::Result<Outcome> {
    let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let [terminate, interrupt] = &mut ends;
    let state: Shared = Arc::new(Mutex::new(state));
    tokio::select! {
        biased;
        _ = terminate.recv() => Ok(Outcome::Told),
        _ = interrupt.recv() => Ok(Outcome::Told),
        outcome = decide(waiting, &state) => Ok(outcome),
        () = listen(waiting, &state) => unreachable!("listening has no end"),
    }
}

async fn listen(waiting: &Waiting, state: &Shared) {
    let answering = async {
        let listener = bind(waiting.report_port).await;
        serve::answer(listener, Arc::clone(state), waiting.source).await;
    };
    let turning_away = async { serve::turn_away(bind(waiting.peer_port).await).await };
    tokio::join!(answering, turning_away);
}

async fn bind(port: u16) -> tokio::net::TcpListener {
    loop {
        match serve::listen(port).await {
            Ok(listener) => return listener,
            Err(error) => tracing::warn!(port, %error, "cannot listen yet"),
        }
        tokio::time::sleep(BIND_AGAIN).await;
    }
}

async fn decide(waiting: &Waiting, state: &Shared) -> Outcome {
    let mut pause = LOOK;
    let mut looks_at_disk = tokio::time::interval(LOOK_AGAIN);
    looks_at_disk.reset();
    tell(state);
    loop {
        let considered = tokio::select! {
            // What was read is as it was, but for what could not be read.
            _ = looks_at_disk.tick() => Ok(is_unreadable(state).then(|| look_again(waiting, state)).flatten()),
            () = tokio::time::sleep(pause) => consider(waiting, state).await,
        };
        let remark = match considered {
            Ok(Some(start)) => return Outcome::Starts(start),
            Ok(None) => continue,
            Err(NotYet::Refused(why)) => {
                pause = LOOK;
                format!("the permit is refused: {why}")
            }
            // Names and members are asked less and less often, up to a bound that nobody notices.
            Err(NotYet::Waits(why)) => {
                pause = (pause * 2).min(LOOK_SELDOM);
                format!("the permit waits: {why}")
            }
        };
        if with(state, |state| state.remark(Some(remark.clone()))) {
            tracing::info!("{remark}");
        }
    }
}

/// Why a permit is not used.
enum NotYet {
    /// It is not good.
    Refused(String),
    /// Something else must come first.
    Waits(String),
}

fn tell(state: &Shared) {
    let finding = with(state, |state| state.finding().clone());
    tracing::info!(verdict = ?finding.verdict, "waiting for a permit: {}", finding.detail);
}

fn is_unreadable(state: &Shared) -> bool {
    with(state, |state| state.finding().verdict == Verdict::Unreadable)
}

/// Looks at the disk again; it starts if it is whole by now.
fn look_again(waiting: &Waiting, state: &Shared) -> Option<Start> {
    let expected = with(state, |state| state.expected().clone());
    match restart::attempt(&waiting.volume, &waiting.surroundings, &expected) {
        Attempt::Starts => Some(Start::Again),
        Attempt::Waits(disk) => {
            let before = with(state, |state| state.finding().clone());
            with(state, |state| state.see(*disk));
            if with(state, |state| *state.finding() != before) {
                tell(state);
            }
            None
        }
    }
}

/// Uses the permit if there is a good one.
async fn consider(waiting: &Waiting, state: &Shared) -> Result<Option<Start>, NotYet> {
    let Some(permit) = permit(&waiting.permit).map_err(NotYet::Refused)? else {
        return Ok(None);
    };
    if permit.mode == Mode::Prepare {
        return make(waiting, state, &permit).await;
    }
    let ask = || {
        let asked = with(state, |state| state.ask(&permit, waiting.source));
        asked.map_err(|refusal| NotYet::Refused(refusal.to_string()))
    };
    let grant = ask()?;
    prepare(waiting, state, &grant).await.map_err(NotYet::Waits)?;
    // The network took its time: the permit may be too old by now.
    let grant = ask()?;
    let committed =
        Keeper::new(&waiting.volume, &mut |_| Ok(())).commit(&grant, &waiting.surroundings, clock::date());
    // So did the disk, and this is the last moment. What came too late leaves a disk that never ran, or that is whole.
    let late = match committed {
        Err(error) => Some(NotYet::Waits(error.to_string())),
        Ok(()) if is_present(&permit, waiting, state) => None,
        Ok(()) => Some(NotYet::Refused(
            "its nonce was renewed while the disk was written".to_owned(),
        )),
    };
    match late {
        None => Ok(Some(grant.start())),
        Some(why) => match look_again(waiting, state) {
            Some(start) => Ok(Some(start)),
            None => Err(why),
        },
    }
}

/// Makes a restored directory beside the data. The process goes on waiting, whatever comes of it.
async fn make(waiting: &Waiting, state: &Shared, permit: &Permit) -> Result<Option<Start>, NotYet> {
    let asked = with(state, |state| state.ask_to_prepare(permit, waiting.source));
    let Some(preparation) = asked.map_err(|refusal| NotYet::Refused(refusal.to_string()))? else {
        return Ok(None);
    };
    with(state, |state| state.remark(None));
    let restore_uid = preparation.restore_uid.clone();
    let failure = side::make(&waiting.volume, preparation, &waiting.program)
        .await
        .err();
    if let Some(failure) = &failure {
        tracing::warn!(
            reason = failure.reason,
            "it was not restored: {}",
            failure.message
        );
    }
    let failed = failure.map(|failure| Preparing {
        restore_uid,
        failure: Some(failure),
    });
    with(state, |state| state.prepared(failed));
    Ok(look_again(waiting, state))
}

/// Whether the permit still answers the present nonce. The disk is another by now, so nothing else is asked.
fn is_present(permit: &Permit, waiting: &Waiting, state: &Shared) -> bool {
    permit.nonce == with(state, |state| state.report(waiting.source).nonce)
}

/// What must hold outside before a first start.
async fn prepare(waiting: &Waiting, state: &Shared, grant: &Grant) -> Result<(), String> {
    let Some(first) = &grant.first else {
        return Ok(());
    };
    let own = with(state, |state| state.expected().member.clone());
    if let Some(url) = address_of(first, &own) {
        peers::is_reachable(url, waiting.pod_ip).await?;
    }
    let Some(who) = grant.unstarted else {
        return Ok(());
    };
    match peers::ask(first, &own, who, &waiting.door).await {
        Answer::Unstarted => Ok(()),
        Answer::No(why) | Answer::Unknown(why) => Err(why),
    }
}

/// The permit, if there is one.
fn permit(path: &Path) -> Result<Option<Permit>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("it cannot be read: {error}");
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let mut bytes = Vec::new();
    file.take(LONGEST)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    // An annotation that is not there is an empty file.
    if bytes.is_empty() {
        return Ok(None);
    }
    contract::read(&bytes).map(Some).map_err(|error| failed(&error))
}
