//! Saying who asks, where etcd wants to know. Neither password nor token is ever shown.

use std::fmt;

use super::Client;
use crate::error::Error;
use crate::rejection::Rejection;

const AUTHENTICATE: &str = "Authenticate";

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The same connection, with a user's rights from now on, which its clones share. etcd rejects a login while
    /// authentication is disabled.
    pub async fn login(mut self, user: &User) -> Result<Self, Error> {
        let credentials = (user.name.clone(), user.password.clone());
        let mut etcd = self.etcd.clone();
        self.call(AUTHENTICATE, etcd.update_user(Some(credentials)))
            .await?;
        self.etcd = etcd;
        Ok(self)
    }

    /// Whether authentication is enabled. Versions before 3.5 tell it only by how they reject a login, so this sends
    /// one without a user name. It needs a quorum and no rights; any other rejection is an error.
    pub async fn is_auth_enabled(&self) -> Result<bool, Error> {
        let nobody = User {
            name: String::new(),
            password: String::new(),
        };
        let login = self.clone().login(&nobody).await;
        match login {
            Ok(_) => Ok(true),
            Err(error) => match error.rejection() {
                Some(Rejection::AuthenticationDisabled) => Ok(false),
                Some(Rejection::Unauthorised(_)) => Ok(true),
                _ => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        let user = User {
            name: "root".to_owned(),
            password: "hunter2".to_owned(),
        };
        assert_eq!(format!("{user:?}"), "User { name: \"root\", .. }");
    }
}
