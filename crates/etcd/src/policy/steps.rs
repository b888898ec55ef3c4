//! The step that leads from what runs to what is wanted. Pure, and judged by what runs, never by what was asked for
//! before: a step between minors is safe or not by the patch every member has reached.

use crate::version::{Minor, Version};

use super::{Verdict, VersionRefusal, newest, verdict};

/// What the user and the cluster allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The user has agreed to a lower minor.
    pub downgrade: bool,
    /// Authentication is on in the cluster.
    pub auth: bool,
}

/// The next thing to do about versions. Every member it is for reaches it before the next step is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Every member runs what is wanted.
    Done,
    /// Another patch of the lowest minor that runs, for the members that run that minor.
    Patch(Version),
    /// The next minor.
    Upgrade(Version),
    /// The minor before: etcd is asked to first, and members follow when their files are ready.
    DowngradeByRequest(Version),
    /// From 3.5 to 3.4, which needs `--next-cluster-version-compatible` on the older members.
    DowngradeByFlag(Version),
}

/// Why there is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepRefusal {
    /// No member is known to run anything.
    #[error("no member says which version it runs")]
    NothingRuns,
    /// What is wanted is not run.
    #[error(transparent)]
    Version(#[from] VersionRefusal),
    /// A member runs something of which nothing is known.
    #[error("a member runs etcd {0}, which is not known: nothing is changed")]
    RunsUnknown(Version),
    /// Members run minors that never run together.
    #[error("members run etcd {lowest} and {highest}, more than one minor apart: nothing is changed")]
    TooFarApart {
        /// The lowest.
        lowest: Version,
        /// The highest.
        highest: Version,
    },
    /// A lower minor without the user's word.
    #[error("etcd {target} is older than {running}, which runs: set updates.allowDowngrade if that is meant")]
    DowngradeNotAllowed {
        /// The highest that runs.
        running: Version,
        /// What is wanted.
        target: Version,
    },
    /// A lower minor that cannot read the files.
    #[error("etcd {target} cannot read the files of {running}: restore a backup into a new cluster instead")]
    NoWayBack {
        /// The highest that runs.
        running: Version,
        /// What is wanted.
        target: Version,
    },
    /// From 3.5 to 3.4 with authentication on.
    #[error("etcd 3.5 goes back to 3.4 only while authentication is off")]
    AuthIsOn,
}

/// The first patch of a minor from which the next minor may be reached. Below this one of 3.5, removed members can
/// come back on 3.6.
fn floor(minor: Minor) -> u32 {
    match minor {
        Minor::V3_5 => 26,
        _ => 0,
    }
}

/// The first patch of 3.4 that knows how to run beside 3.5 while a cluster goes back.
const BACK_TO_3_4: u32 = 31;

/// What leads from the versions that run, one for each member, to the wanted one.
pub fn next(running: &[Version], target: &Version, allowed: Allowed) -> Result<Step, StepRefusal> {
    let (Some(lowest), Some(highest)) = (running.iter().min(), running.iter().max()) else {
        return Err(StepRefusal::NothingRuns);
    };
    let known =
        |version: &Version| Minor::of(version).ok_or_else(|| StepRefusal::RunsUnknown(version.clone()));
    let (low, high) = (known(lowest)?, known(highest)?);
    if let Verdict::Refused(why) = verdict(target) {
        return Err(why.into());
    }
    let wanted = Minor::of(target).ok_or_else(|| VersionRefusal::Unknown(target.clone()))?;
    if high.number() - low.number() > 1 {
        return Err(StepRefusal::TooFarApart {
            lowest: lowest.clone(),
            highest: highest.clone(),
        });
    }
    if low != high {
        return finish(lowest, (low, high), target, wanted, allowed);
    }
    if wanted == high {
        let is_done = running.iter().all(|version| version == target);
        return Ok(if is_done {
            Step::Done
        } else {
            Step::Patch(target.clone())
        });
    }
    if wanted > high {
        if lowest.patch < floor(high) {
            return Ok(Step::Patch(newest(high)));
        }
        return Ok(Step::Upgrade(toward(high.number() + 1, target, wanted)));
    }
    back(highest, high, target, wanted, allowed)
}

/// Members run two neighbouring minors: a step has begun, and ends on one side or the other.
fn finish(
    lowest: &Version,
    (low, high): (Minor, Minor),
    target: &Version,
    wanted: Minor,
    allowed: Allowed,
) -> Result<Step, StepRefusal> {
    if wanted >= high {
        if lowest.patch < floor(low) {
            // The members that are behind go to a patch from which the step is safe; those ahead stay.
            return Ok(Step::Patch(newest(low)));
        }
        return Ok(Step::Upgrade(toward(high.number(), target, wanted)));
    }
    // The cluster still has the lower minor's version, so its members may go back without being asked.
    if allowed.downgrade || wanted == low {
        let version = if wanted == low {
            target.clone()
        } else {
            newest(low)
        };
        return Ok(Step::Patch(version));
    }
    Err(StepRefusal::DowngradeNotAllowed {
        running: lowest.clone(),
        target: target.clone(),
    })
}

fn back(
    highest: &Version,
    high: Minor,
    target: &Version,
    wanted: Minor,
    allowed: Allowed,
) -> Result<Step, StepRefusal> {
    let no_way = || StepRefusal::NoWayBack {
        running: highest.clone(),
        target: target.clone(),
    };
    if wanted < Minor::V3_4 || high <= Minor::V3_4 {
        return Err(no_way());
    }
    if wanted == Minor::V3_4 && target.patch < BACK_TO_3_4 {
        return Err(no_way());
    }
    if !allowed.downgrade {
        return Err(StepRefusal::DowngradeNotAllowed {
            running: highest.clone(),
            target: target.clone(),
        });
    }
    let version = toward(high.number() - 1, target, wanted);
    if high == Minor::V3_5 {
        return if allowed.auth {
            Err(StepRefusal::AuthIsOn)
        } else {
            Ok(Step::DowngradeByFlag(version))
        };
    }
    Ok(Step::DowngradeByRequest(version))
}

/// The wanted version if it is of this minor, else the newest of the minor on the way.
fn toward(number: u32, target: &Version, wanted: Minor) -> Version {
    let minor = Minor::ALL.into_iter().find(|minor| minor.number() == number);
    match minor {
        Some(minor) if minor != wanted => newest(minor),
        _ => target.clone(),
    }
}

#[cfg(test)]
mod tests;
