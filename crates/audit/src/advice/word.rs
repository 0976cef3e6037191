//! A path as one word of a shell's command line, whatever bytes it is made of.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The path (absolute, so that it is no option), quoted where it must be. Control characters and bytes that are no text are written `$'\n'`, which bash, zsh,
/// ksh and POSIX since 2024 understand: so a command is one line, and names the very file.
pub fn word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::from("$'");
    for byte in bytes {
        // Writing to a String does not fail. Octal, because a hexadecimal escape goes on as long as digits follow.
        let _ = match byte {
            b'\'' | b'\\' => write!(text, "\\{}", *byte as char),
            b' '..=b'~' => write!(text, "{}", *byte as char),
            _ => write!(text, "\\{byte:03o}"),
        };
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_shell_reads_back_the_very_bytes() {
        for bytes in [
            &b"/usr/lib/libc.so.6"[..],
            b"/srv/my files/it's $HOME `x`",
            b"/srv/new\nline\tand 1",
            b"/srv/latin-\xe9\x31",
            b"/srv/\\'\"*?[a]~#;&|<>(){}!",
            "/srv/größe".as_bytes(),
        ] {
            let quoted = word(Path::new(OsStr::from_bytes(bytes)));
            assert!(!quoted.contains('\n'));
            let output = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {quoted}")])
                .output()
                .expect("bash runs");
            assert_eq!(output.stdout, bytes, "{quoted}");
        }
    }

    #[test]
    fn plain_paths_stay_as_they_are() {
        assert_eq!(word(Path::new("/usr/lib/python3.11/a-b_c+d.so")), "/usr/lib/python3.11/a-b_c+d.so");
        assert_eq!(word(Path::new("/a b")), "'/a b'");
    }
}
