//! Making a member's data beside the old ones, of a snapshot that was downloaded: by etcd's own program, checked, brought
//! to the disk, and marked as complete last of all. Nothing that was there before is touched.

use std::path::Path;

use etcd_operator_api::contract::{PrepareFailure, Prepared, VERSION};
use etcd_operator_etcd::tool::{Restore, ToolError, Tools, run};

use crate::disk::{self, Depth};
use crate::keeper::{Keeper, NotKept};
use crate::permit::Preparation;
use crate::view::{Data, LogHead};
use crate::volume::Volume;

/// What etcd's program writes beside the database: the log, which is as large from the start as it will ever be.
const LOG: u64 = 128 << 20;

/// Makes it.
pub async fn make(volume: &Volume, preparation: Preparation, program: &Path) -> Result<(), PrepareFailure> {
    blocking(volume, |volume| {
        Keeper::new(volume, &mut |_| Ok(())).clear_restored().map_err(kept)
    })
    .await?;
    room(volume, preparation.snapshot_size)?;
    let directory = volume.restored(&preparation.directory);
    let restore = Restore {
        snapshot: volume.snapshot(),
        data_dir: directory.clone(),
        name: preparation.member.clone(),
        members: preparation.first.members.clone(),
        token: preparation.first.token.clone(),
        bump: preparation.bump,
    };
    let tools = Tools::at(program.parent().unwrap_or(Path::new("/")));
    let told = restore
        .invocation(&tools, tools.that_restores())
        .map_err(|error| failure("ToolFailed", error.to_string(), false))?;
    tracing::info!(restore = preparation.restore_uid, program = %told.program.display(), "restoring beside the data");
    let made = match run(&told).await {
        Ok(_) => blocking(volume, move |volume| complete(volume, &preparation)).await,
        Err(error) => Err(tool(&error)),
    };
    if made.is_err() {
        // Half a directory only takes room; what cannot be removed now is before the next one is made.
        let _ = blocking(volume, |volume| {
            Keeper::new(volume, &mut |_| Ok(())).clear_restored().map_err(kept)
        })
        .await;
    }
    made
}

/// What is on the disk by now is checked as any start would, and only then marked.
fn complete(volume: &Volume, preparation: &Preparation) -> Result<(), PrepareFailure> {
    let directory = volume.restored(&preparation.directory);
    let LogHead { cluster, member } = match disk::data(&directory, Depth::Start) {
        Ok(Data::Logged(store)) => store
            .whole()
            .map_err(|why| failure("ToolFailed", format!("what was restored is not whole: {why}"), false))?,
        Ok(Data::None | Data::Unlogged) => {
            let message = format!("etcd's program ended well and left no member at {}", directory.display());
            return Err(failure("ToolFailed", message, false));
        }
        Err(trouble) => return Err(failure("Io", trouble, true)),
    };
    let prepared = Prepared {
        version: VERSION,
        restore_uid: preparation.restore_uid.clone(),
        object_sha256: preparation.object_sha256.clone(),
        incarnation: preparation.incarnation,
        directory: preparation.directory.clone(),
        cluster_id: Some(cluster.to_string()),
        member_id: Some(member.to_string()),
    };
    Keeper::new(volume, &mut |_| Ok(()))
        .mark_prepared(&prepared)
        .map_err(kept)
}

/// Whether there is room for another database and its log.
fn room(volume: &Volume, database: u64) -> Result<(), PrepareFailure> {
    let root = volume.root();
    let found = rustix::fs::statvfs(root).map_err(|error| {
        let message = format!("cannot tell how much is free on {}: {error}", root.display());
        failure("Io", message, true)
    })?;
    enough(root, found.f_frsize.saturating_mul(found.f_bavail), database)
}

fn enough(root: &Path, free: u64, database: u64) -> Result<(), PrepareFailure> {
    let needed = database.saturating_add(LOG);
    if free >= needed {
        return Ok(());
    }
    let message = format!(
        "{free} bytes are free on {}, and {needed} are needed beside the data of before: {database} for the database and {LOG} for etcd's log; enlarge the volume, or free some of it",
        root.display()
    );
    Err(failure("NoRoom", message, true))
}

fn tool(error: &ToolError) -> PrepareFailure {
    let message = error.to_string();
    match error {
        ToolError::NotRun { .. } | ToolError::NoVersion { .. } => failure("NoTool", message, false),
        ToolError::Failed { .. } if message.contains("no space left") => failure("NoRoom", message, true),
        ToolError::Failed { .. } => failure("ToolFailed", message, false),
    }
}

fn kept(error: NotKept) -> PrepareFailure {
    let reason = if error.is_for_lack_of_room() { "NoRoom" } else { "Io" };
    failure(reason, error.to_string(), true)
}

fn failure(reason: &str, message: String, retriable: bool) -> PrepareFailure {
    PrepareFailure {
        reason: reason.to_owned(),
        message,
        retriable,
    }
}

/// Gibibytes take their time to be synced or removed, and the report is asked for meanwhile.
async fn blocking(
    volume: &Volume,
    work: impl FnOnce(&Volume) -> Result<(), PrepareFailure> + Send + 'static,
) -> Result<(), PrepareFailure> {
    let volume = volume.clone();
    let done = tokio::task::spawn_blocking(move || work(&volume)).await;
    done.unwrap_or_else(|stopped| Err(failure("Io", stopped.to_string(), true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_too_small_is_told_in_numbers() {
        let root = Path::new("/var/etcd");
        assert_eq!(enough(root, LOG + 7, 7), Ok(()));
        let failure = enough(root, LOG + 6, 7).expect_err("one byte is missing");
        assert_eq!((failure.reason.as_str(), failure.retriable), ("NoRoom", true));
        for number in ["134217734 bytes are free", "134217735 are needed"] {
            assert!(failure.message.contains(number), "{failure:?}");
        }
    }
}
