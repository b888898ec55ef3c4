//! What was heard on beds, compared with what the roles grant. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};

use super::{Ask, Heard};

/// How a right is used by scenarios that not every run of them shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seldom {
    /// By some that only a full run plays.
    Full,
    /// By none for sure.
    Chance,
}

/// What the roles grant.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// All of it.
    pub granted: BTreeSet<Ask>,
    /// What of it may be missed in a run, and in which.
    pub seldom: BTreeMap<Ask, Seldom>,
}

/// How much of all that shows the operator was played, and passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Played {
    /// Only a part: nothing follows from what was not used.
    Part,
    /// The gate.
    Gate,
    /// Everything but what measures.
    Full,
}

impl Terms {
    /// One bed: the operator was let do all that it asked for, and by no other rights than these.
    pub fn on_a_bed(&self, heard: &Heard) -> Result<()> {
        ensure!(heard.refused.is_empty(), "{}", heard.refused.join("\n"));
        let beyond = told(heard.used.difference(&self.granted));
        ensure!(
            beyond.is_empty(),
            "the operator was let {beyond} on this bed, which no right in the table of rights grants"
        );
        Ok(())
    }

    /// A whole run: every right was used, or it is said why it need not be.
    pub fn in_all(&self, used: &BTreeSet<Ask>, played: Played) -> Result<()> {
        let may_be_missed = |ask: &&Ask| match (self.seldom.get(*ask), played) {
            (_, Played::Part) | (Some(Seldom::Chance), _) | (Some(Seldom::Full), Played::Gate) => true,
            (None, _) | (Some(Seldom::Full), Played::Full) => false,
        };
        let missing = told(self.granted.difference(used).filter(|ask| !may_be_missed(ask)));
        if missing.is_empty() {
            return Ok(());
        }
        bail!(
            "granted and never used: {missing}. Take each out of the table of rights, or note there why no scenario of \
             such a run uses it"
        )
    }

    /// What can be said where only a part was played; nothing where no operator ran.
    pub fn so_far(&self, used: &BTreeSet<Ask>) -> Option<String> {
        let count = self.granted.intersection(used).count();
        let all = self.granted.len();
        let rest = match told(self.granted.difference(used)) {
            none if none.is_empty() => String::new(),
            rest => format!("; not used: {rest}"),
        };
        (!used.is_empty()).then(|| {
            format!(
                "rights: {count} of {all} were used{rest}\nrights are not judged: that takes the whole gate, or a whole \
                 full run, and all of it passed"
            )
        })
    }
}

fn told<'a>(asks: impl Iterator<Item = &'a Ask>) -> String {
    asks.map(Ask::to_string).collect::<Vec<_>>().join(", ")
}
