//! Starts and stops the backup commands, in a Job and by hand, and reports their results. The job crate does the work.

pub mod args;
mod fetch_to_volume;

use std::io::{Write as _, stderr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use etcd_operator_api::contract::{JobOrder, JobOutcome, Manifest, Task};
use etcd_operator_etcd::tool::Tools;
use etcd_operator_job::backup::Run;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::members::NetworkMembers;
use etcd_operator_job::names::BY_HAND;
use etcd_operator_job::object::Object;
use etcd_operator_job::outcome::{self, Exit};
use etcd_operator_job::{
    Failure, catalog, checks, cli_messages, clock, fetch as fetching, inspect as inspecting, list as listing,
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
    BackupArgs, FetchArgs, InspectArgs, ListArgs, OrderArgs, OrderOnlyArgs, PruneArgs, StoreArgs,
};
use crate::logs;

/// The termination message file of a pod.
const TERMINATION_MESSAGE: &str = "/dev/termination-log";

/// `etcd-operator backup`: makes one backup, as its order or its flags say.
pub fn backup(args: BackupArgs) -> Result<Exit> {
    let order_args = args.order.clone();
    let environment = Environment {
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        tools: Tools::at(&args.etcd_programs),
        ..Environment::default()
    };
    run_order("backup", &order_args, |now| args.into_order(now), environment)
}

/// `etcd-operator prune`: deletes backups as its order says. There are no flags for that, so by hand it needs an order,
/// too.
pub fn prune(args: &PruneArgs) -> Result<Exit> {
    let order_args = &args.order;
    let read = |_| {
        order_args
            .read()?
            .context("--order or the variable ETCD_OPERATOR_ORDER must be set")
    };
    run_order("prune", order_args, read, Environment::default())
}

/// `etcd-operator verify` and `etcd-operator compare`, which need an order for this command.
pub fn run_order_only(command: &str, args: &OrderOnlyArgs) -> Result<Exit> {
    let order_args = &args.order;
    let read = |_| {
        order_args
            .read()?
            .context("--order or the variable ETCD_OPERATOR_ORDER must be set")
    };
    run_order(command, order_args, read, Environment::default())
}

/// `etcd-operator list`: prints all backups below a URL, or reports those of one owner as its order says.
pub fn list(args: &ListArgs) -> Result<Exit> {
    let Some(url) = &args.url else {
        let order_args = &args.order;
        let read = |_| order_args.read()?.context("--order must be set");
        return run_order("list", order_args, read, Environment::default());
    };
    run_by_hand(&args.order.log_level, false, async {
        let order = args.store.prefix_order(url)?;
        let keys = settings::read_key_ids(args.store.keys.as_deref())?;
        let store = settings::connect_store(&order, Policy::default()).await?;
        let found = listing::list_prefix(&store, &order.path, |id| keys.iter().any(|key| key == id)).await?;
        if args.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&found)?))
        } else {
            print(&found.to_string())
        }
    })
}

/// `etcd-operator fetch`: downloads a backup into a file, or onto a member's volume as its order says. An existing file
/// is replaced only with `--force`.
pub fn fetch(args: &FetchArgs) -> Result<Exit> {
    let (Some(url), Some(file)) = (&args.url, &args.file) else {
        let order_args = &args.order;
        let read = |_| {
            order_args
                .read()?
                .context("URL and FILE, or --order, must be set")
        };
        let environment = Environment {
            pod_uid: args.pod_uid.clone().unwrap_or_default(),
            ..Environment::default()
        };
        return run_order("fetch", order_args, read, environment);
    };
    run_by_hand(&args.order.log_level, true, async {
        if !args.force && file.symlink_metadata().is_ok() {
            bail!("{} exists: specify another file, or use --force", file.display());
        }
        let stored = open(&args.store, url).await?;
        let (object, manifest) = (&stored.object, stored.manifest.as_ref());
        let fetched = if args.without_hash {
            fetching::fetch_unhashed(object, manifest, file).await?
        } else {
            fetching::fetch(object, manifest, file).await?
        };
        let note = match (fetched.resumed, &stored.manifest) {
            (0, Some(_)) => String::new(),
            (0, None) => ", without a manifest".to_owned(),
            (resumed, _) => format!(", of which {resumed} bytes already existed"),
        };
        let verdict = match fetched.checked.kind {
            StreamKind::Snapshot { .. } => "its hash is correct",
            StreamKind::Copy => "it has no hash, so its integrity is unknown",
        };
        print(&format!(
            "{}: {} bytes of a snapshot{note}; {verdict}\n",
            file.display(),
            fetched.checked.length
        ))
    })
}

/// `etcd-operator inspect`: prints what a file or a stored backup holds. Fails if `--full` finds damaged pages.
pub fn inspect(args: &InspectArgs) -> Result<Exit> {
    run_by_hand("warn", false, async {
        let is_file = !args.what.contains("://") && !inspecting::has_frames(Path::new(&args.what))?;
        let summary = match (is_file, args.full) {
            (true, false) => inspecting::summarize_quickly(Path::new(&args.what))?,
            (true, true) => inspecting::summarize_fully(Path::new(&args.what))?,
            (false, is_full) => summarize_stored_backup(args, is_full).await?,
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

/// Summarizes a stored backup from a few of its pages, or with `--full` after a download.
async fn summarize_stored_backup(args: &InspectArgs, is_full: bool) -> Result<Summary> {
    let mut stored = open(&args.store, &args.what).await?;
    if !is_full {
        return Ok(checks::summarize(&mut stored.object).await?);
    }
    let scratch = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Scratch::new(scratch.join(format!("inspect-{}", std::process::id())))?;
    let file = folder.0.join("snapshot.db");
    fetching::fetch_unhashed(&stored.object, stored.manifest.as_ref(), &file).await?;
    Ok(inspecting::summarize_fully(&file)?)
}

/// A directory for sensitive data, deleted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: PathBuf) -> Result<Self> {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A stored backup that is open for reading, and its manifest if it has one.
struct StoredBackup {
    object: Object,
    manifest: Option<Manifest>,
}

/// Opens the backup at a URL, with its manifest if it has one.
async fn open(args: &StoreArgs, url: &str) -> Result<StoredBackup> {
    let order = args.order(url)?;
    let keys: KeyRing = settings::read_keys(args.keys.as_deref())?;
    let store = settings::connect_store(&order, Policy::default()).await?;
    let manifest = catalog::read_manifest(&store, &order.path).await?;
    let object = Object::open(&store, &order.path, manifest.as_ref(), keys).await?;
    Ok(StoredBackup { object, manifest })
}

/// Local settings of a run that are not part of its order.
struct Environment {
    /// Directory for downloading a backup for verification.
    scratch: PathBuf,
    /// The etcd programs.
    tools: Tools,
    /// The UID of the pod, if it runs in one.
    pod_uid: String,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            scratch: std::env::temp_dir(),
            tools: Tools::of_image(),
            pod_uid: String::new(),
        }
    }
}

/// Runs an order, and reports the outcome in the log and the pod's termination message. A failed run is an `Exit`; an
/// error means that it could not start or report.
fn run_order(
    command: &str,
    order_args: &OrderArgs,
    read: impl FnOnce(jiff::Timestamp) -> Result<JobOrder>,
    environment: Environment,
) -> Result<Exit> {
    logs::start(order_args.log_format, &order_args.log_level)?;
    let read = read(clock::now()).and_then(|order| match order.task.command() {
        actual if actual == command => Ok(order),
        actual => bail!("the order is for `etcd-operator {actual}`"),
    });
    let order = match read {
        Ok(order) => order,
        Err(error) => {
            let failure = Failure::bad_order(format!("{error:#}"));
            return report_outcome(order_args, "", outcome::failed_outcome(&failure));
        }
    };
    let runtime = runtime(matches!(order.task, Task::Fetch(_)))?;
    let done = runtime.block_on(run(&order, environment));
    // Gives background aborts some time to finish.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    let outcome = done.unwrap_or_else(|failure| {
        let is_by_hand = order.owner_uid == BY_HAND;
        outcome::failed_outcome(&if is_by_hand { failure.by_hand() } else { failure })
    });
    report_outcome(order_args, &order.run, outcome)
}

/// Runs an order until it ends or its deadline passes. SIGTERM and SIGINT stop it.
async fn run(order: &JobOrder, environment: Environment) -> Result<JobOutcome, Failure> {
    let stop = CancellationToken::new();
    let failed = |error: std::io::Error| Failure::retriable("Stopped", error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let work = run_until_stopped(order, environment, stop.clone());
    let wait_for_signal = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
        std::future::pending().await
    };
    tokio::select! {
        outcome = work => outcome,
        never = wait_for_signal => never,
    }
}

/// Runs a task, and aborts it when the process must stop or the deadline has passed. A backup is not aborted here: it
/// stops by itself and cleans up.
async fn run_until_stopped(
    order: &JobOrder,
    environment: Environment,
    stop: CancellationToken,
) -> Result<JobOutcome, Failure> {
    let stopped = stop.clone();
    // A backup needs time to clean up. All other tasks may be aborted, because a retry continues them.
    let stop_reason = async {
        let until = match &order.task {
            Task::Backup(_) => return std::future::pending().await,
            Task::Verify(task) => Some(task.deadline),
            Task::Recheck(task) => Some(task.deadline),
            Task::Compare(task) => Some(task.deadline),
            Task::List { .. } | Task::Prune { .. } | Task::Erase | Task::Fetch(_) => None,
        };
        let deadline_passed = async {
            match until {
                Some(until) => {
                    tokio::time::sleep(clock::time_until(until)).await;
                    Failure::permanent("Deadline", format!("the deadline {until} has passed"))
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stopped.cancelled() => Failure::retriable("Stopped", "the process received a termination signal"),
            deadline_passed = deadline_passed => deadline_passed,
        }
    };
    tokio::select! {
        done = execute_task(order, environment, stop) => done,
        why = stop_reason => Err(why),
    }
}

/// Carries out the task of an order, with Secrets from the directories in the order.
async fn execute_task(
    order: &JobOrder,
    environment: Environment,
    stop: CancellationToken,
) -> Result<JobOutcome, Failure> {
    let store = || settings::connect_store(&order.store, Policy::default());
    match &order.task {
        Task::Backup(task) => {
            let store = store().await?;
            let members = NetworkMembers::new(settings::read_etcd_access(&task.source)?);
            let run = Run {
                order,
                task,
                store,
                members: &members,
                scratch: environment.scratch,
                tools: environment.tools,
                budget: Budget::new(BUFFERS),
                stop,
            };
            run.backup().await.map(outcome::stored_outcome)
        }
        Task::List { after } => listing::list(&store().await?, order, after.as_deref()).await,
        Task::Prune { keep } => pruning::prune(&store().await?, order, keep).await,
        Task::Erase => pruning::erase(&store().await?, order).await,
        Task::Verify(task) => {
            verifying::verify(&store().await?, &order.store.path, task, &environment.scratch).await
        }
        Task::Recheck(task) => verifying::recheck(&store().await?, &order.store.path, task).await,
        // These two read the store's Secrets only if needed.
        Task::Fetch(task) => fetch_to_volume::fetch(order, task, &environment.pod_uid).await,
        Task::Compare(task) => comparing::compare(task).await,
    }
}

/// Logs the outcome, and writes it to `--result` or else to the termination message file of the pod, if there is one.
fn report_outcome(order_args: &OrderArgs, run: &str, outcome: JobOutcome) -> Result<Exit> {
    let exit = outcome::exit_of(&outcome);
    match &outcome {
        JobOutcome::Failed { reason, message, .. } => tracing::error!(reason, "{message}"),
        done => tracing::info!(?done, "done"),
    }
    let message = outcome::termination_message(run, outcome);
    let default = Path::new(TERMINATION_MESSAGE);
    let file = order_args
        .result
        .as_deref()
        .or_else(|| default.exists().then_some(default));
    if let Some(file) = file {
        std::fs::write(file, message).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(exit)
}

/// Builds the async runtime. Downloads use a single thread: passing data between threads takes a third more time.
fn runtime(fetches: bool) -> Result<Runtime> {
    let mut threads = if fetches {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    let built = threads.enable_all().build();
    built.context("cannot start the async runtime")
}

/// Runs a command that a user started by hand. Its errors name flags instead of fields.
fn run_by_hand(level: &str, fetches: bool, work: impl Future<Output = Result<()>>) -> Result<Exit> {
    logs::start(crate::cli::LogFormat::Human, level)?;
    runtime(fetches)?.block_on(async {
        tokio::select! {
            done = work => done.map_err(|error| anyhow!(cli_messages::by_hand(&format!("{error:#}")))),
            _ = tokio::signal::ctrl_c() => {
                let _ = writeln!(stderr(), "interrupted");
                bail!("interrupted; run the same command again to resume")
            }
        }
    })?;
    Ok(Exit::Done)
}

/// Prints to standard output. A closed pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
