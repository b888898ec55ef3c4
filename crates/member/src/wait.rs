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
use crate::disk::{self, Depth};
use crate::fingerprint::Surroundings;
use crate::keeper::Keeper;
use crate::peers::{self, Answer, Door};
use crate::permit::{Grant, address_of};
use crate::restart::{self, Attempt};
use crate::serve::{self, Shared, with};
use crate::state::{Source, State};
use crate::verdict::judge;
use crate::view::DiskView;
use crate::volume::Volume;
use crate::{clock, side};

/// How often the permit's file is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often at least, when what it needs besides is waited for.
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How often a disk is looked at again that could not be read, or from which a person can remove foreign files.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long until a port is tried again that something else still has.
const BIND_AGAIN: Duration = Duration::from_millis(500);
/// No permit is longer.
const LONGEST: u64 = 1 << 18;

/// What a process needs in order to wait for a permit.
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

/// Serves the report and turns other members away until etcd may start, by a permit or because the disk is whole by
/// now, or until the pod is terminated. An error only if signals cannot be received.
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

/// Listens at a port. While something else has it, it tries again.
async fn bind(port: u16) -> tokio::net::TcpListener {
    loop {
        match serve::listen(port).await {
            Ok(listener) => return listener,
            Err(error) => tracing::warn!(port, %error, "cannot listen yet"),
        }
        tokio::time::sleep(BIND_AGAIN).await;
    }
}

/// Looks for a permit until etcd may start. Never returns if etcd of this image must not start.
async fn decide(waiting: &Waiting, state: &Shared) -> Outcome {
    let mut pause = LOOK;
    let mut looks_at_disk = tokio::time::interval(LOOK_AGAIN);
    // A look that hangs is no second one right after it.
    looks_at_disk.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    looks_at_disk.reset();
    let mut was_emptied = false;
    tell(state);
    if with(state, |state| state.refuses_image()) {
        // The image of a process does not change: its pod is re-created from a corrected spec.
        return std::future::pending().await;
    }
    loop {
        let considered = tokio::select! {
            _ = looks_at_disk.tick() => Ok(look_by_time(waiting, state, &mut was_emptied)),
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

/// Logs what the disk was found to be, and as an error that etcd of this image must not start. Why a permit is not used
/// is logged in `decide`.
fn tell(state: &Shared) {
    let (finding, is_refused) = with(state, |state| (state.finding().clone(), state.refuses_image()));
    if is_refused {
        tracing::error!(
            "etcd does not start: its image holds another minor version than the pod template names"
        );
    }
    tracing::info!(verdict = ?finding.verdict, "waiting for a permit: {}", finding.detail);
}

/// Reads a disk again that may have changed since: one that could not be read, and a foreign one. `Some` if it is whole by
/// now. Any other disk stays as it was read. `was_emptied` tells whether a foreign disk was empty at the last look.
fn look_by_time(waiting: &Waiting, state: &Shared, was_emptied: &mut bool) -> Option<Start> {
    match with(state, |state| state.finding().verdict.clone()) {
        Verdict::Unreadable => look_again(waiting, state),
        Verdict::Foreign => {
            look_at_foreign(waiting, state, was_emptied);
            None
        }
        _ => None,
    }
}

/// Reads a foreign disk again. By that it becomes empty, or foreign for another reason, and nothing else: a person may be
/// in the middle of copying data to it. Only the next start of the container judges those. It counts as empty only at the second
/// look in a row, as data may be copied to it right after the foreign files were removed.
fn look_at_foreign(waiting: &Waiting, state: &Shared, was_emptied: &mut bool) {
    let (before, expected) = with(state, |state| (state.finding().clone(), state.expected().clone()));
    let read = |depth| disk::read(&waiting.volume, &waiting.surroundings, depth);
    let is_taken = |disk: &DiskView| {
        let finding = judge(disk, &expected);
        finding != before && matches!(finding.verdict, Verdict::Empty | Verdict::Foreign)
    };
    // The log of another cluster may be long: it is read only once there is something to report.
    let disk = read(Depth::Start);
    let is_empty = judge(&disk, &expected).verdict == Verdict::Empty;
    let is_first = is_empty && !*was_emptied;
    *was_emptied = is_empty;
    if is_first || !is_taken(&disk) {
        return;
    }
    let disk = read(Depth::Report);
    if is_taken(&disk) {
        with(state, |state| state.see(disk));
        tell(state);
    }
}

/// Reads the disk again. `Some` if it is whole by now: its start is counted then.
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

/// Uses the permit if there is one. `None` if there is none, or if it started nothing. The nonce is checked again after
/// each thing that takes time.
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

/// Restores a directory beside the data. The process waits on after that, also if it failed, unless the disk is whole
/// by now.
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

/// Checks the network before a first start: the member's own peer URL leads here, and, where it joins, the other
/// members say that it has never started. Any other start needs no network.
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

/// The permit in the file. `None` if there is no file, or an empty one.
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

#[cfg(test)]
mod tests {
    use etcd_operator_api::contract::{RefusedImage, VERSION};

    use super::*;
    use crate::certificates::Certificates;
    use crate::chance;
    use crate::samples::{self, Scratch};

    const SOURCE: Source = Source {
        now: clock::since_boot,
        draw: chance::draw,
    };

    /// What it takes to wait on a volume.
    fn waiting(volume: Volume, scratch: &Scratch) -> Waiting {
        Waiting {
            volume,
            surroundings: Surroundings::default(),
            permit: scratch.path().join("permit"),
            pod_ip: None,
            report_port: 0,
            peer_port: 0,
            door: Door {
                is_secure: false,
                port: 0,
                certificates: Certificates::default(),
            },
            source: SOURCE,
            program: "/usr/local/bin/etcd".into(),
        }
    }

    /// Waits on an empty volume with a good permit, for as long as a permit takes that is used.
    async fn outcome(refused: Option<RefusedImage>, scratch: &Scratch) -> Option<Outcome> {
        let volume = Volume::at(scratch.path().join("volume"));
        let surroundings = Surroundings::default();
        let found = disk::read(&volume, &surroundings, disk::Depth::Report);
        let mut state =
            State::new(samples::expected(), "pod".into(), found, SOURCE).with_refused_image(refused);
        let report = state.report(SOURCE);
        // In place of the peer port of this process.
        let peer = serve::listen(0).await.expect("a port");
        let port = peer.local_addr().expect("an address").port();
        let permit = Permit {
            version: VERSION,
            pod_uid: report.pod_uid,
            process: report.process,
            nonce: report.nonce,
            mode: Mode::Bootstrap,
            incarnation: report.expected_incarnation,
            cluster_uid: report.cluster_uid,
            cluster_id: None,
            member_id: None,
            initial_cluster: format!("{}=http://127.0.0.1:{port}", samples::expected().member),
            token: "t".into(),
            restore: None,
        };
        scratch.file("permit", contract::write(&permit));
        let waiting = waiting(volume, scratch);
        let waited = tokio::time::timeout(Duration::from_secs(3), wait(&waiting, state)).await;
        waited.ok().map(|outcome| outcome.expect("an outcome"))
    }

    #[tokio::test]
    async fn a_process_that_refuses_its_image_uses_no_permit_and_writes_nothing() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.path().join("volume")).expect("a directory");
        let refused = RefusedImage {
            found: "3.7.3".into(),
            expected: "3.6".into(),
        };
        let entries = || {
            std::fs::read_dir(scratch.path().join("volume"))
                .expect("read")
                .count()
        };
        assert_eq!(outcome(Some(refused), &scratch).await, None);
        assert_eq!(entries(), 0);
        let started = outcome(None, &scratch).await;
        assert!(
            matches!(started, Some(Outcome::Starts(Start::First(_)))),
            "{started:?}"
        );
        assert_ne!(entries(), 0);
    }

    #[test]
    fn a_foreign_disk_is_empty_once_its_files_are_removed_and_is_never_taken_for_more() {
        let scratch = Scratch::new();
        let volume = Volume::at(scratch.path().join("volume"));
        scratch.file("volume/theirs", "of somebody else");
        scratch.file("volume/more", "of somebody else");
        let waiting = waiting(volume.clone(), &scratch);
        let found = disk::read(&volume, &waiting.surroundings, Depth::Report);
        let state: Shared = Arc::new(Mutex::new(State::new(
            samples::expected(),
            "pod".into(),
            found,
            SOURCE,
        )));
        let mut was_emptied = false;
        let mut finding_later = || {
            assert_eq!(look_by_time(&waiting, &state, &mut was_emptied), None);
            with(&state, |state| state.finding().clone())
        };
        let finding = finding_later();
        assert_eq!(finding.verdict, Verdict::Foreign);
        assert!(finding.detail.contains("theirs"), "{}", finding.detail);
        // Data that a person is still copying are not judged.
        scratch.file(
            "volume/operator/identity.json",
            contract::write(&samples::identity()),
        );
        assert_eq!(finding_later(), finding);
        std::fs::remove_dir_all(scratch.path().join("volume/operator")).expect("removed");
        std::fs::remove_file(scratch.path().join("volume/theirs")).expect("removed");
        let finding = finding_later();
        assert_eq!(finding.verdict, Verdict::Foreign);
        assert!(!finding.detail.contains("theirs"), "{}", finding.detail);
        std::fs::remove_file(scratch.path().join("volume/more")).expect("removed");
        assert_eq!(finding_later().verdict, Verdict::Foreign);
        // Data are copied to it in between.
        scratch.file("volume/more", "of somebody else");
        assert_eq!(finding_later().verdict, Verdict::Foreign);
        std::fs::remove_file(scratch.path().join("volume/more")).expect("removed");
        assert_eq!(finding_later().verdict, Verdict::Foreign);
        assert_eq!(finding_later().verdict, Verdict::Empty);
    }
}
