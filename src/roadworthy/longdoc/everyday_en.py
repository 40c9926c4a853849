"""What people say, and what statutes, regulations, standards and contracts in English call it. A dictionary of words;
nothing in it knows of a document or of a question.

A line is a concept: everyday words and phrases, ``>``, terms of art. A term that no document of a library holds does
nothing.
"""

from __future__ import annotations

EN = """
company, firm, business, shop, retailer, seller > controller
supplier, vendor, subcontractor, outsourced, cloud provider > processor, sub-processor, another processor
watchdog, regulator, inspector, ombudsman, authorities > supervisory authority
my details, my info, my file, my records, my data, private details > personal data, data subject
wipe, delete, erase, forget me, forgotten, scrub, get rid of > right to erasure, right to be forgotten
correct, correction, fix, misspelled, out of date > rectification, inaccurate personal data
freeze, pause, block > restriction of processing
on file, duplicate, get a copy, what they know > right of access, copy of the personal data
switch provider, export my > data portability, structured commonly used machine-readable format
junk mail, adverts, advertising, spam, marketing > direct marketing, right to object
robot, algorithm, computer decides > automated individual decision-making, profiling
software decides, scoring, credit score > automated individual decision-making, profiling
permission, agree to, opt in, tick box, ticked, signing up, signed up > consent
opt out, change my mind, take back > withdraw consent
kid, kids, child, teenager, minor, parent, parents > child, holder of parental responsibility
medical, health, religion, race > special categories of personal data, biometric, genetic, health
ethnic, gay, fingerprints, face scan, dna > special categories of personal data, biometric, genetic, health
criminal past, convict, police record, criminal record > criminal convictions and offences
leak, leaked, hacked, hackers, stole, stolen laptop, breach > personal data breach
tell customers, warn users > communication of a personal data breach to the data subject
how many hours, how many days, report to > notification, without undue delay, time limit
privacy officer, privacy chief, data officer > data protection officer
risk study, risk assessment, risk check, impact study > data protection impact assessment
ask first, check with, before launch > prior consultation
paper trail, keep a log, bookkeeping of, register of > records of processing activities
fine, fined, fines, punish, punishment, punishments > administrative fines, penalties
sue, damages, compensated, payout > right to compensation and liability
judge, take it to court, courtroom > effective judicial remedy
complain, grievance, complaint > lodge a complaint
charity, campaign group, on my behalf > representation of data subjects, not-for-profit body
abroad, overseas, outside europe, another country, foreign, american, worldwide > third country, transfer
safe country, trusted country > adequacy decision, adequate level of protection
subsidiaries, corporate group, multinational, sister companies > binding corporate rules, group of undertakings
foreign judge, foreign court, foreign order > transfers or disclosures not authorised by union law
together, jointly, two companies > joint controllers
employee, employees, staff, hr, workplace, boss, worker > employment, employees
fire her, sack, dismiss, interfere > dismissed or penalised, instructions
journalist, reporter, novelist, artist, newspaper > journalistic purposes, freedom of expression and information
historian > archiving purposes in the public interest, scientific or historical research, statistical purposes
researcher > archiving purposes in the public interest, scientific or historical research, statistical purposes
statistics > archiving purposes in the public interest, scientific or historical research, statistical purposes
archive > archiving purposes in the public interest, scientific or historical research, statistical purposes
church, parish > churches and religious associations
identity number, social security number > national identification number
scrambled, encrypt, precautions > security of processing, encryption, technical and organisational measures
nickname, mask names, coded names > pseudonymisation
from the start, built in, default > data protection by design and by default
seal, badge, certificate of > certification, data protection seals
industry rules, trade body > codes of conduct
plain words, easy to read, small print > transparent, concise, intelligible, clear and plain language
stored longer, how long keep, keep forever > storage limitation, storage period
another reason, other use, reuse > compatible, further processing, purpose limitation
without asking, without my permission > lawfulness of processing, legitimate interests
on what grounds, legal basis, excuse > lawfulness of processing, legitimate interests
household, at home, hobby > purely personal or household activity
where does it apply, covered by > territorial scope, offering of goods or services
what kinds of, does this apply to > material scope
raid, seize > investigative powers, access to any premises
dead people, deceased > deceased persons
tell recipients, passed on to > notification obligation, recipient
upper chamber, upper house > Senate, Senators
lower chamber, lower house > House of Representatives
lawmakers, legislators, parliament, legislature, congressmen > Congress, Senators and Representatives
chief executive, head of state, white house, commander, leader of the nation, new leader > President
deputy, second in command, running mate > Vice President
ballot, vote, votes, voters, polls, suffrage > right of citizens to vote, elections, Electors
police, cops, officials, search my home, rummage > searches and seizures, Warrants, probable cause
gun, guns, rifle, weapons > bear Arms, Militia
troops, soldiers, army > Soldier, quartered
press, speech, speak freely > freedom of speech, press, exercise of religion, assemble, petition
censor, protest, faith, worship > freedom of speech, press, exercise of religion, assemble, petition
lawyer, attorney > Assistance of Counsel
trial, hearing, awaiting > speedy and public trial, impartial jury
tried again, tried twice > twice put in jeopardy
testify, stay silent, incriminate > witness against himself, due process
bail, torture, cruel > excessive bail, cruel and unusual punishments
slave, slaves, bondage, forced labour > slavery, involuntary servitude
nationality, immigrant, naturalised, foreigner, born here > citizens, naturalized, natural born Citizen
black, colour, skin > race, color, previous condition of servitude
women, woman, female > on account of sex
how old, teenager vote > age, eighteen years of age, attained to the age
tax, wages, levy, taxes > taxes on incomes, lay and collect taxes
alcohol, liquor, drinking, booze, beer > intoxicating liquors, repealed
poll fee > poll tax
capital, washington > District constituting the seat of Government
kicked out, thrown out, remove from office > Impeachment, removed from Office
betray, betrayed, traitor, betraying > Treason
war, attack another country > declare War
coins, print money, currency > coin Money
inventor, inventors, writers > Authors and Inventors
raise, pay rise, salary > Compensation
federal judges, judges, bench > Judges, supreme and inferior Courts, good Behaviour
new territory, become a state > New States may be admitted
fled, runaway, fugitive, escaped > flee from Justice, delivered up
veto, refuses to sign, refuse to sign, bill > Bill, Objections, reconsider
altered, amend, change this document, rewritten > propose Amendments, ratified
knight, noble, king, duke > Title of Nobility
gift from abroad > Emolument
inauguration > terms, January
third term, how often elected > elected more than twice
incapacitated, too ill > inability to discharge the powers and duties, death or resignation
take my land, private property > private property be taken for public use, just compensation
headcount, count people > Enumeration
tie, deadlock, casting vote > equally divided, no Vote
recognise court judgments, court judgments > Full Faith and Credit, judicial Proceedings
number, which code, reply, answer, respond > status code
verb, verbs, operation, operations, call > request method
page > resource, representation
server, site, website, backend > origin server
nginx, reverse proxy, middleman, load balancer, cdn > gateway, proxy, intermediary
browser, program, app, client > user agent
log in, login, password, sign in, sign-in, logged in > authentication, credentials, 401 Unauthorized, WWW-Authenticate
not allowed, no access, denied > 403 Forbidden
not there, missing, does not exist > 404 Not Found
gone forever > 410 Gone
moved, new address, for good > 301 Moved Permanently, Location
temporarily moved > 302 Found, 307 Temporary Redirect
down, overloaded, too much traffic, maintenance, busy > 503 Service Unavailable, Retry-After
crashed, bug in the server, broke > 500 Internal Server Error
too slow, timed out, timeout, took too long > 504 Gateway Timeout, 408 Request Timeout
too large, far larger, too big, huge file > 413 Content Too Large
too long > 414 URI Too Long
wrong format, format not supported > 415 Unsupported Media Type
french, german, language > Accept-Language
gzip, brotli, compress, decompress, zip > Accept-Encoding, content coding
cached copy, unchanged, cached > 304 Not Modified, validators, conditional request
newer than, changed since > If-Modified-Since, Last-Modified
overwrite each other, lost update > If-Match, lost update, 412 Precondition Failed
resume, halfway > range requests, Range, 206 Partial Content
repeat, retry, try again, blindly > idempotent methods, automatically retry
without downloading, only the size > HEAD
overwrite, replace the whole > PUT
send a form, submit > POST, 303 See Other
echo, debugging, loop back > TRACE
tunnel > CONNECT
supports, what is supported > Allow, OPTIONS
came from, which page > Referer
browser program > User-Agent
padlock, secure connection > https, TLS, certificate
another protocol, websocket, switch protocol > Upgrade, 101 Switching Protocols
before uploading > Expect, 100-continue
nothing to send back, empty reply > 204 No Content
done later, queued > 202 Accepted
header, headers > header field
clash, edit clash > 409 Conflict
quit, end the deal, cancel, get out of, walk away > termination, terminate
ceiling on damages, cap, most we pay > limitation of liability
hand over the deal, pass on the contract > assignment
secret, secrets, keep quiet > confidential information, confidentiality
which court, whose law > governing law, jurisdiction
rival product, compete, competitor > covenant not to compete, non-competition
bought by, sold to another, takeover > change of control
promise quality, guarantee > warranty, warranties
cover losses, hold harmless > indemnify, indemnification
look at the books, check the accounts > audit rights, books and records
run on, extend, automatically go on > renewal term
sole, only one allowed > exclusive
""".strip()
