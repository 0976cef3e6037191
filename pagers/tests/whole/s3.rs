//! Chunks in S3: a real server process, moto, which is got with pip.

use crate::harness::{LONG, PAGE, Process, TestHost, content, read_mapped};
use crate::left_out::left_out;
use commonhold::{CreateOptions, Object, SyncMode};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "/pagers/s3";
const SIZE: usize = (2 << 20) + 5 * PAGE;

/// The server's program: installed here, or got now; the reason if neither is possible.
fn moto_server() -> Result<PathBuf, String> {
    let runs = |program: &Path| {
        let tried = Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
    for program in [PathBuf::from("moto_server"), environment.join("bin/moto_server")] {
        if runs(&program) {
            return Ok(program);
        }
    }
    let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).output();
    let made = made.map_err(|error| format!("python3: {error}"))?;
    if !made.status.success() {
        return Err(format!("python3 -m venv: {}", String::from_utf8_lossy(&made.stdout).trim()));
    }
    let pip = Command::new(environment.join("bin/pip")).args(["install", "--quiet", "moto[server]"]).output();
    let pip = pip.map_err(|error| format!("pip: {error}"))?;
    if !pip.status.success() {
        return Err(format!("pip install moto[server]: {}", String::from_utf8_lossy(&pip.stderr).trim()));
    }
    Ok(environment.join("bin/moto_server"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The status line of the answer to a request without a body.
fn http(port: u16, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let host = format!("Host: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    write!(stream, "{method} {path} HTTP/1.1\r\n{host}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Starts the server with one bucket.
fn server(program: &Path, port: u16) -> Process {
    let mut command = Command::new(program);
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::start(&mut command);
    let end = Instant::now() + LONG;
    while !http(port, "PUT", "/shelf").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        assert!(Instant::now() < end, "the server does not answer");
        std::thread::sleep(Duration::from_millis(100));
    }
    process
}

fn pager(host: &TestHost, port: u16) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold-pager-store"));
    command.args(["s3://shelf/some/prefix", "--name", NAME, "--timeout-s", "3"]);
    command.args(["--endpoint", &format!("http://127.0.0.1:{port}"), "--host"]).arg(host.state());
    command.envs([
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ]);
    Process::serving(&mut command)
}

fn sync(object: &Object) -> commonhold::Result<u64> {
    object.sync(0, object.size_bytes())
}

#[test]
fn pages_live_in_s3() {
    let program = match moto_server() {
        Ok(program) => program,
        Err(why) => {
            left_out(&format!("no S3 server to test with: {why}"));
            return;
        }
    };
    let host = TestHost::start();
    let port = free_port();
    let s3 = server(&program, port);
    let first = pager(&host, port);
    let options = CreateOptions { sync: SyncMode::Atomic, ..CreateOptions::default() };
    let object = host.create("/lab/data", NAME, SIZE as u64, options);
    assert!(read_mapped(&object).iter().all(|b| *b == 0), "never stored");
    let mut expected = content(SIZE, 1);
    object.write_at(&expected, 0).unwrap();
    assert_eq!(sync(&object).unwrap(), (SIZE / PAGE) as u64);
    expected[PAGE..2 * PAGE].copy_from_slice(&content(PAGE, 2));
    object.write_at(&expected[PAGE..2 * PAGE], PAGE as u64).unwrap();
    assert_eq!(sync(&object).unwrap(), 1);
    let listed = http(port, "GET", "/shelf?list-type=2").unwrap();
    for number in 0..3 {
        assert!(listed.contains(&format!("some/prefix/lab/data/0000000{number}")), "{listed}");
    }
    drop((object, first));
    let _second = pager(&host, port);
    host.settle();
    host.kill_both();
    host.start_again();
    let object = host.open("/lab/data");
    assert!(read_mapped(&object) == expected, "after another pager and another host");
    // The server goes away: a sync is in the journal already, and its error says what could not be done.
    object.write_at(&content(PAGE, 3), 0).unwrap();
    drop(s3);
    let error = sync(&object).unwrap_err();
    assert!(error.message.contains("/pagers/s3 failed: page_out"), "{error}");
    let mut page = [0; PAGE];
    object.read_at(&mut page, 0).unwrap();
    assert!(page == *content(PAGE, 3), "nothing in memory is lost");
}
