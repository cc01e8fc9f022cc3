-- People, approvals and jobs, of the version that state.py names.
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS people (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, verifier TEXT NOT NULL, token BLOB UNIQUE,
    added_at REAL NOT NULL, epsilon TEXT, session_budget TEXT, daily TEXT,
    subject TEXT, given TEXT, ends_at REAL);
CREATE UNIQUE INDEX IF NOT EXISTS subjects ON people (subject);
CREATE TABLE IF NOT EXISTS sessions (
    digest BLOB PRIMARY KEY, person TEXT NOT NULL, csrf TEXT NOT NULL, ends_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS approvals (
    number INTEGER PRIMARY KEY, person TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
    digest TEXT NOT NULL, epsilon TEXT NOT NULL, status TEXT NOT NULL, decided_by TEXT,
    asked_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY, person TEXT NOT NULL, name TEXT NOT NULL UNIQUE, recipe TEXT NOT NULL,
    status TEXT NOT NULL, stages TEXT NOT NULL, message TEXT, asked_at REAL NOT NULL,
    server TEXT NOT NULL, claim_ends REAL NOT NULL);
CREATE TABLE IF NOT EXISTS dashboards (
    number INTEGER PRIMARY KEY, person TEXT NOT NULL, shared TEXT NOT NULL, title TEXT NOT NULL,
    items TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS claims (
    name TEXT PRIMARY KEY, person TEXT NOT NULL, asked TEXT NOT NULL, asked_at REAL NOT NULL);
