//! What the authority remembers: which names have certificates, and which tokens it gave out. A token is marked as used
//! before the certificate is made, so that whatever happens then, it gets nobody else in.

use super::authority::Authority;
use super::files::{RECORDS_FILE, lock_directory, replace};
use super::token::Token;
use crate::certificate::{PeerRights, check_host_name};
use crate::{hex, random};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use ring::digest;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A token is remembered for so long after its end, so that whoever comes with it is told why it does not work.
const REMEMBERED: u64 = 30 * 86_400;
/// Most tokens that are open at once: nobody gives out more by hand.
const MOST_TOKENS: usize = 1024;

/// What a token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The only name it is good for; none: any that no host has.
    pub name: Option<String>,
    /// What the host will be allowed.
    pub rights: PeerRights,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TokenRecord {
    /// SHA-256 of its secret: who reads the file learns no token.
    hash: [u8; 32],
    expires: u64,
    grant: Grant,
    used_by: Option<String>,
}

/// The records, read whole and written whole under the directory's lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    hosts: Vec<(String, PeerRights)>,
    tokens: Vec<TokenRecord>,
}

fn rights_word(rights: PeerRights) -> &'static str {
    match rights {
        PeerRights::ReadWrite => "read-write",
        PeerRights::ReadOnly => "read-only",
    }
}

fn rights(word: &str) -> Option<PeerRights> {
    [PeerRights::ReadWrite, PeerRights::ReadOnly].into_iter().find(|rights| rights_word(*rights) == word)
}

impl Records {
    pub(super) fn to_text(&self) -> String {
        let mut text =
            String::from("# hosts: name rights; tokens: hash-of-secret expires rights for-name used-by\n");
        // Writing to a string cannot fail.
        for (name, rights) in &self.hosts {
            let _ = writeln!(text, "host {name} {}", rights_word(*rights));
        }
        for token in &self.tokens {
            let name = token.grant.name.as_deref().unwrap_or("*");
            let used = token.used_by.as_deref().unwrap_or("*");
            let rights = rights_word(token.grant.rights);
            let _ =
                writeln!(text, "token {} {} {rights} {name} {used}", hex::encode(&token.hash), token.expires);
        }
        text
    }

    pub(super) fn from_text(text: &str) -> Option<Records> {
        let mut records = Records::default();
        let host = |word: &str| check_host_name(word).ok().map(|()| word.to_owned());
        let given = |word: &str| if word == "*" { Some(None) } else { host(word).map(Some) };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["host", name, word] => records.hosts.push((host(name)?, rights(word)?)),
                ["token", hash, expires, word, name, used] => records.tokens.push(TokenRecord {
                    hash: hex::decode(hash)?,
                    expires: expires.parse().ok()?,
                    grant: Grant { name: given(name)?, rights: rights(word)? },
                    used_by: given(used)?,
                }),
                _ => return None,
            }
        }
        Some(records)
    }

    fn load(path: &Path) -> Result<Records> {
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Records::default()),
            read => {
                Records::from_text(&read.doing(format!("reading {}", path.display()))?).ok_or_else(|| {
                    let words = format!(
                        "{} is damaged: restore it from a copy, or every name and token is anybody's",
                        path.display()
                    );
                    Error::new(ErrorKind::Corrupt, words)
                })
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.hosts.iter().any(|(known, _)| known == name)
    }

    fn add_host(&mut self, name: &str, rights: PeerRights) {
        self.hosts.retain(|(known, _)| known != name);
        self.hosts.push((name.to_owned(), rights));
    }

    /// Uses a token for a host of this name; what the host is allowed.
    pub(super) fn redeem(&mut self, secret: &[u8; 32], name: &str, now: u64) -> Result<PeerRights> {
        let denied = |what: String| Err(Error::new(ErrorKind::Permission, what));
        let another = "ask for another (`commonhold ca token`)";
        let hash = hash(secret);
        let taken = self.has(name);
        let Some(token) = self.tokens.iter_mut().find(|token| token.hash == hash) else {
            return denied(format!("this authority knows no such token, or it ended long ago: {another}"));
        };
        if let Some(by) = &token.used_by {
            return denied(format!(
                "the token was used already, by {by:?}: it is good for one host; {another}"
            ));
        }
        if token.expires <= now {
            return denied(format!("the token expired {} s ago: {another}", now - token.expires));
        }
        if let Some(only) = token.grant.name.as_ref().filter(|only| *only != name) {
            return denied(format!("the token is for a host named {only:?}, not {name:?}"));
        }
        if taken {
            return denied(format!(
                "a host named {name:?} has a certificate already: take another name, or renew it where the authority \
                 is (`commonhold ca issue --renew`)"
            ));
        }
        token.used_by = Some(name.to_owned());
        let rights = token.grant.rights;
        self.add_host(name, rights);
        Ok(rights)
    }
}

fn hash(secret: &[u8; 32]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Seconds since 1970 by this machine's clock: tokens are given and judged where the authority is, so that other clocks
/// do not matter.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Authority {
    fn change<T>(&self, change: impl FnOnce(&mut Records) -> Result<T>) -> Result<T> {
        let path = self.directory().join(RECORDS_FILE);
        let _alone = lock_directory(self.directory())?;
        let mut records = Records::load(&path)?;
        let done = change(&mut records)?;
        replace(&path, records.to_text().as_bytes())?;
        Ok(done)
    }

    /// Notes that a name gets a certificate. One that has one is refused unless it is to be renewed.
    pub fn register(&self, name: &str, rights: PeerRights, renew: bool) -> Result<()> {
        check_host_name(name)?;
        self.change(|records| {
            if records.has(name) && !renew {
                return Err(Error::new(
                    ErrorKind::Exists,
                    format!("a host named {name:?} has a certificate already: --renew gives it another"),
                ));
            }
            records.add_host(name, rights);
            Ok(())
        })
    }

    /// Makes a token that gets one host in until then. `address` is where the service for newcomers is reached.
    pub fn give_token(&self, address: &str, grant: Grant, lifetime: Duration) -> Result<Token> {
        if let Some(name) = &grant.name {
            check_host_name(name)?;
        }
        let secret = random::bytes()?;
        let token = Token { secret, fingerprint: self.fingerprint(), address: address.to_owned() };
        // What the newcomer could not read is refused here.
        token.to_string().parse::<Token>().map_err(|_| {
            Error::invalid(format!("{address:?} is not where a service can be reached: give HOST:PORT"))
        })?;
        let now = seconds(SystemTime::now());
        self.change(|records| {
            records.tokens.retain(|token| token.expires.saturating_add(REMEMBERED) > now);
            let open = |token: &&TokenRecord| token.used_by.is_none() && token.expires > now;
            if records.tokens.iter().filter(open).count() >= MOST_TOKENS {
                let words =
                    format!("{MOST_TOKENS} tokens are unused, which is the limit: wait until some expire");
                return Err(Error::new(ErrorKind::TooMany, words));
            }
            let expires = now.saturating_add(lifetime.as_secs().max(1));
            records.tokens.push(TokenRecord { hash: hash(&secret), expires, grant, used_by: None });
            Ok(())
        })?;
        Ok(token)
    }

    /// Uses a token; what its host is allowed.
    pub(crate) fn redeem(&self, secret: &[u8; 32], name: &str) -> Result<PeerRights> {
        check_host_name(name)?;
        self.change(|records| records.redeem(secret, name, seconds(SystemTime::now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_token(name: Option<&str>, rights: PeerRights) -> Records {
        let grant = Grant { name: name.map(str::to_owned), rights };
        let token = TokenRecord { hash: hash(&[5; 32]), expires: 100, grant, used_by: None };
        Records { hosts: vec![("old".into(), PeerRights::ReadWrite)], tokens: vec![token] }
    }

    #[test]
    fn records_are_written_and_read() {
        let mut records = with_token(Some("x"), PeerRights::ReadOnly);
        assert_eq!(Records::from_text(&records.to_text()), Some(records.clone()));
        records.redeem(&[5; 32], "x", 99).unwrap();
        assert_eq!(Records::from_text(&records.to_text()), Some(records));
        for wrong in ["host a", "token 00 1 read-only * *", "host a admin", "x"] {
            assert_eq!(Records::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_is_good_once_in_time_and_for_a_new_name() {
        let mut records = with_token(None, PeerRights::ReadOnly);
        let denied = |records: &mut Records, secret, name, now, says: &str| {
            let before = records.clone();
            let error = records.redeem(&[secret; 32], name, now).unwrap_err();
            assert!(error.message.contains(says), "{error}");
            assert_eq!(*records, before);
        };
        denied(&mut records, 6, "new", 99, "no such token");
        denied(&mut records, 5, "new", 100, "expired 0 s ago");
        denied(&mut records, 5, "old", 99, "already");
        assert_eq!(records.redeem(&[5; 32], "new", 99).unwrap(), PeerRights::ReadOnly);
        denied(&mut records, 5, "newer", 99, "used already, by \"new\"");
        let mut records = with_token(Some("only"), PeerRights::ReadWrite);
        denied(&mut records, 5, "new", 99, "\"only\"");
        assert!(records.redeem(&[5; 32], "only", 99).is_ok());
    }
}
