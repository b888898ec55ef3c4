//! What was heard on beds, compared with what the roles grant. Pure.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::{Ask, Heard};

/// What the roles grant.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// All of it.
    pub granted: BTreeSet<Ask>,
}

/// How much of all that shows the operator was played, and passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Played {
    /// Only a part: nothing follows from what was not used.
    Part,
    /// The gate, or more than that.
    Gate,
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

    /// A whole run: every right was used.
    pub fn in_all(&self, used: &BTreeSet<Ask>) -> Result<()> {
        let missing = told(self.granted.difference(used));
        ensure!(
            missing.is_empty(),
            "granted and never used: {missing}. Take each out of the table of rights, or have a scenario of the gate \
             use it"
        );
        Ok(())
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
                "rights: {count} of {all} were used{rest}\nrights are not judged: that takes the whole gate, and all of it \
                 passed"
            )
        })
    }
}

fn told<'a>(asks: impl Iterator<Item = &'a Ask>) -> String {
    asks.map(Ask::to_string).collect::<Vec<_>>().join(", ")
}
