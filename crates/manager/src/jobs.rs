//! The commands about backups, in a Job and by hand: what they do is in the job crate, here is how they are started, how
//! they are ended, and to whom they tell what came of it.

pub mod args;
mod restoring;

use std::io::{Write as _, stderr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use etcd_operator_api::contract::{JobOrder, JobOutcome, Manifest, Task};
use etcd_operator_etcd::tool::Tools;
use etcd_operator_job::backup::Run;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::members::Network;
use etcd_operator_job::names::BY_HAND;
use etcd_operator_job::object::Object;
use etcd_operator_job::outcome::{self, Exit};
use etcd_operator_job::{
    Failure, catalog, check, clock, fetch as fetching, hand, inspect as inspecting, list as listing,
};
use etcd_operator_job::{compare as comparing, prune as pruning, settings, verify as verifying};
use etcd_operator_snapshot::frames::KeyRing;
use etcd_operator_snapshot::stream::StreamKind;
use etcd_operator_snapshot::summary::Summary;
use etcd_operator_store::Policy;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::args::{
    BackupArgs, FetchArgs, InspectArgs, ListArgs, OrderArgs, OrderedArgs, PruneArgs, StoreArgs,
};
use crate::logs;

/// Where a pod says what came of it.
const TERMINATION_MESSAGE: &str = "/dev/termination-log";

/// `etcd-operator backup`
pub fn backup(args: BackupArgs) -> Result<Exit> {
    let said = args.order.clone();
    let places = Places {
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        tools: Tools::at(&args.etcd_programs),
        ..Places::default()
    };
    order("backup", &said, |now| args.into_order(now), places)
}

/// `etcd-operator prune`
pub fn prune(args: &PruneArgs) -> Result<Exit> {
    let said = &args.order;
    let read = |_| {
        said.read()?
            .context("--order or the variable ETCD_OPERATOR_ORDER must say what goes")
    };
    order("prune", said, read, Places::default())
}

/// `etcd-operator verify` and `etcd-operator compare`
pub fn ordered(command: &str, args: &OrderedArgs) -> Result<Exit> {
    let said = &args.order;
    let read = |_| {
        said.read()?
            .context("--order or the variable ETCD_OPERATOR_ORDER must say what is done")
    };
    order(command, said, read, Places::default())
}

/// `etcd-operator list`
pub fn list(args: &ListArgs) -> Result<Exit> {
    let Some(url) = &args.url else {
        let said = &args.order;
        let read = |_| said.read()?.context("--order must say what is listed");
        return order("list", said, read, Places::default());
    };
    by_hand(&args.order.log_level, false, async {
        let order = args.store.prefix(url)?;
        let keys = settings::key_ids(args.store.keys.as_deref())?;
        let store = settings::store(&order, Policy::default()).await?;
        let found = listing::listing(&store, &order.path, |id| keys.iter().any(|key| key == id)).await?;
        if args.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&found)?))
        } else {
            print(&found.to_string())
        }
    })
}

/// `etcd-operator fetch`
pub fn fetch(args: &FetchArgs) -> Result<Exit> {
    let (Some(url), Some(file)) = (&args.url, &args.file) else {
        let said = &args.order;
        let read = |_| {
            said.read()?
                .context("URL and FILE, or --order, must say what is fetched")
        };
        let places = Places {
            pod_uid: args.pod_uid.clone().unwrap_or_default(),
            ..Places::default()
        };
        return order("fetch", said, read, places);
    };
    by_hand(&args.order.log_level, true, async {
        if !args.force && file.symlink_metadata().is_ok() {
            bail!(
                "{} exists already: give another name, or say --force",
                file.display()
            );
        }
        let stored = open(&args.store, url).await?;
        let (object, manifest) = (&stored.object, stored.manifest.as_ref());
        let arrived = if args.without_hash {
            fetching::fetch_unhashed(object, manifest, file).await?
        } else {
            fetching::fetch(object, manifest, file).await?
        };
        let note = match (arrived.resumed, &stored.manifest) {
            (0, Some(_)) => String::new(),
            (0, None) => ", which has no manifest".to_owned(),
            (resumed, _) => format!(", of which {resumed} were there already"),
        };
        let judged = match arrived.checked.kind {
            StreamKind::Snapshot { .. } => "its hash is right",
            StreamKind::Copy => "it has no hash, and nobody can tell whether it is whole",
        };
        print(&format!(
            "{}: {} bytes of a snapshot{note}; {judged}\n",
            file.display(),
            arrived.checked.length
        ))
    })
}

/// `etcd-operator inspect`
pub fn inspect(args: &InspectArgs) -> Result<Exit> {
    by_hand("warn", false, async {
        let is_file = !args.what.contains("://") && !inspecting::has_frames(Path::new(&args.what))?;
        let summary = match (is_file, args.full) {
            (true, false) => inspecting::quick(Path::new(&args.what))?,
            (true, true) => inspecting::whole(Path::new(&args.what))?,
            (false, is_full) => stored_summary(args, is_full).await?,
        };
        let text = if args.json {
            format!("{}\n", serde_json::to_string_pretty(&summary)?)
        } else {
            summary.to_string()
        };
        print(&text)?;
        if summary.walk.is_some_and(|walk| !walk.damage.is_empty()) {
            bail!("the database is damaged");
        }
        Ok(())
    })
}

async fn stored_summary(args: &InspectArgs, is_full: bool) -> Result<Summary> {
    let mut stored = open(&args.store, &args.what).await?;
    if !is_full {
        return Ok(check::summary(&mut stored.object).await?);
    }
    let scratch = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Scratch::new(scratch.join(format!("inspect-{}", std::process::id())))?;
    let file = folder.0.join("snapshot.db");
    fetching::fetch_unhashed(&stored.object, stored.manifest.as_ref(), &file).await?;
    Ok(inspecting::whole(&file)?)
}

/// A folder for what may be a secret, and is gone when it is no longer needed, however far it came.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: PathBuf) -> Result<Self> {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Stored {
    object: Object,
    manifest: Option<Manifest>,
}

async fn open(args: &StoreArgs, url: &str) -> Result<Stored> {
    let order = args.order(url)?;
    let keys: KeyRing = settings::keys(args.keys.as_deref())?;
    let store = settings::store(&order, Policy::default()).await?;
    let manifest = catalog::manifest(&store, &order.path).await?;
    let object = Object::open(&store, &order.path, manifest.as_ref(), keys).await?;
    Ok(Stored { object, manifest })
}

/// What a run finds where it is started, and no order says.
struct Places {
    /// Where a backup may be laid out to be checked.
    scratch: PathBuf,
    /// etcd's own programs.
    tools: Tools,
    /// The UID of the pod, where it runs in one.
    pod_uid: String,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            scratch: std::env::temp_dir(),
            tools: Tools::of_image(),
            pod_uid: String::new(),
        }
    }
}

/// Does what an order says, and tells pod and people what came of it.
fn order(
    command: &str,
    said: &OrderArgs,
    read: impl FnOnce(jiff::Timestamp) -> Result<JobOrder>,
    places: Places,
) -> Result<Exit> {
    logs::start(said.log_format, &said.log_level)?;
    let read = read(clock::now()).and_then(|order| match order.task.command() {
        right if right == command => Ok(order),
        right => bail!("the order is one for `etcd-operator {right}`"),
    });
    let order = match read {
        Ok(order) => order,
        Err(error) => {
            let failure = Failure::order(format!("{error:#}"));
            return told(said, "", outcome::failed(&failure));
        }
    };
    let runtime = runtime(matches!(order.task, Task::Fetch(_)))?;
    let done = runtime.block_on(run(&order, places));
    // What is still being aborted in the background gets a little time for it.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    let outcome = done.unwrap_or_else(|failure| {
        let is_by_hand = order.owner_uid == BY_HAND;
        outcome::failed(&if is_by_hand { failure.by_hand() } else { failure })
    });
    told(said, &order.run, outcome)
}

async fn run(order: &JobOrder, places: Places) -> Result<JobOutcome, Failure> {
    let stop = CancellationToken::new();
    let failed = |error: std::io::Error| Failure::passing("Stopped", error.to_string());
    let mut ends = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
    let work = work(order, places, stop.clone());
    let told = async {
        tokio::select! {
            _ = ends.recv() => {}
            _ = interrupts.recv() => {}
        }
        stop.cancel();
        std::future::pending().await
    };
    tokio::select! {
        outcome = work => outcome,
        never = told => never,
    }
}

async fn work(order: &JobOrder, places: Places, stop: CancellationToken) -> Result<JobOutcome, Failure> {
    let told = stop.clone();
    // A backup takes its time to clean up; of everything else the next try goes on wherever this one ends.
    let cut_off = async {
        let until = match &order.task {
            Task::Backup(_) => return std::future::pending().await,
            Task::Verify(task) => Some(task.deadline),
            Task::Compare(task) => Some(task.deadline),
            Task::List { .. } | Task::Prune { .. } | Task::Erase | Task::Fetch(_) => None,
        };
        let over = async {
            match until {
                Some(until) => {
                    tokio::time::sleep(until.duration_since(clock::now()).unsigned_abs()).await;
                    Failure::lasting("Deadline", format!("the run was to be over at {until}"))
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = told.cancelled() => Failure::passing("Stopped", "the process was asked to end"),
            over = over => over,
        }
    };
    tokio::select! {
        done = carry_out(order, places, stop) => done,
        why = cut_off => Err(why),
    }
}

async fn carry_out(order: &JobOrder, places: Places, stop: CancellationToken) -> Result<JobOutcome, Failure> {
    let store = || settings::store(&order.store, Policy::default());
    match &order.task {
        Task::Backup(task) => {
            let store = store().await?;
            let members = Network::new(settings::way(&task.source)?);
            let run = Run {
                order,
                task,
                store,
                members: &members,
                scratch: places.scratch,
                tools: places.tools,
                budget: Budget::of(BUFFERS),
                stop,
            };
            run.backup().await.map(outcome::stored)
        }
        Task::List { after } => listing::list(&store().await?, order, after.as_deref()).await,
        Task::Prune { keep } => pruning::prune(&store().await?, order, keep).await,
        Task::Erase => pruning::erase(&store().await?, order).await,
        Task::Verify(task) => {
            verifying::verify(&store().await?, &order.store.path, task, &places.scratch).await
        }
        // Without need neither touches a Secret of the store.
        Task::Fetch(task) => restoring::fetch(order, task, &places.pod_uid).await,
        Task::Compare(task) => comparing::compare(task).await,
    }
}

fn told(said: &OrderArgs, run: &str, outcome: JobOutcome) -> Result<Exit> {
    let exit = outcome::exit(&outcome);
    match &outcome {
        JobOutcome::Failed { reason, message, .. } => tracing::error!(reason, "{message}"),
        done => tracing::info!(?done, "done"),
    }
    let message = outcome::message(run, outcome);
    let default = Path::new(TERMINATION_MESSAGE);
    let file = said
        .result
        .as_deref()
        .or_else(|| default.exists().then_some(default));
    if let Some(file) = file {
        std::fs::write(file, message).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(exit)
}

/// What runs a task. What is fetched is written where it has come: from one thread to another it costs a third more.
fn runtime(fetches: bool) -> Result<Runtime> {
    let mut threads = if fetches {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    let built = threads.enable_all().build();
    built.context("the async runtime cannot start")
}

/// Runs what somebody asked for by hand.
fn by_hand(level: &str, fetches: bool, work: impl Future<Output = Result<()>>) -> Result<Exit> {
    logs::start(crate::cli::LogFormat::Human, level)?;
    runtime(fetches)?.block_on(async {
        tokio::select! {
            done = work => done.map_err(|error| anyhow!(hand::by_hand(&format!("{error:#}")))),
            _ = tokio::signal::ctrl_c() => {
                let _ = writeln!(stderr(), "interrupted");
                bail!("interrupted; run the same again to go on")
            }
        }
    })?;
    Ok(Exit::Done)
}

/// Prints, and takes a reader that went away (`| head`) for the end.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output cannot be written"),
    }
}
