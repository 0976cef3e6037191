//! The terminal of `top`: keys, pictures, and its state given back whatever happens.

use super::{Choice, View, draw};
use crate::commands::interrupts::end_by;
use crate::failure::{Done, Failure};
use commonhold::{Error, Host};
use commonhold_object::error::Doing;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::time::{Duration, Instant};

/// Gives the terminal back when it goes out of scope; a panic does so by the hook that `try_init` sets.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows it until the user has enough.
pub fn run(host: &Host, interval: Duration) -> Done {
    let mut view = View::new(host)?;
    restore_on_signals()?;
    let mut terminal = ratatui::try_init().doing("cannot take the terminal")?;
    let restore = Restore;
    let failed = |error: std::io::Error| Failure::from(Error::io("cannot use the terminal", &error));
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| draw::draw(frame, &view.picture())).map_err(failed)?;
        if event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match chosen(key) {
                    Some(Wish::Quit) => break,
                    Some(Wish::Choose(choice)) => view.choose(choice),
                    None => {}
                },
                _ => {} // another size: drawn anew at once
            }
        }
        if Instant::now() >= next {
            view.look(host);
            next = Instant::now() + interval;
        }
    }
    drop(restore);
    Ok(())
}

/// A signal ends the process at once, even while it waits for a host; the terminal is given back first.
fn restore_on_signals() -> Result<(), Error> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT]).doing("cannot watch for signals")?;
    let waiting = move || {
        if let Some(signal) = signals.forever().next() {
            ratatui::restore();
            end_by(signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(waiting).doing("cannot watch for signals")?;
    Ok(())
}

enum Wish {
    Quit,
    Choose(Choice),
}

fn chosen(key: KeyEvent) -> Option<Wish> {
    let wish = match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Up | KeyCode::Char('k') => Wish::Choose(Choice::Up),
        KeyCode::Down | KeyCode::Char('j') => Wish::Choose(Choice::Down),
        KeyCode::Char('s') => Wish::Choose(Choice::Sort),
        KeyCode::Char('r') => Wish::Choose(Choice::Turn),
        KeyCode::Char(' ') => Wish::Choose(Choice::Pause),
        _ => return None,
    };
    Some(wish)
}
