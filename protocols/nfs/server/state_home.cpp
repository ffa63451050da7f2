// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/state_home.hpp>

#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>

namespace verbena::nfs {

namespace {

using files::errc;

// How long a request waits for what is in its way before its client is told to come again.
constexpr duration patience = std::chrono::seconds(1);

// Where all, or the clients of one peer, have used up what there is, one of them whose lease is over has it taken: true, at most as often as
// `tries` has left.
task<bool> find_more(files::state_table& table, files::client_id client, const error& why, int& tries)
{
    const bool of_peer = why == errc::peer_is_full;
    if ((!of_peer && why != errc::all_is_full) || --tries < 0)
        co_return false;
    const auto dropped =
        co_await table.book().drop_courtesy(1, table.last_lacking(), of_peer ? client : files::nobody);
    co_return dropped && *dropped > 0;
}
constexpr int most_dropped = 4;

// Of the recovery store's failures, and of those who were asked to stop: later it may work.
error answer_of(const error& failure) noexcept
{
    if (failure.code().category() == files::files_category())
        return failure;
    return {errc::busy, failure.context(), failure.detail()};
}

template<class T>
result<T> answer_of(result<T> r) noexcept
{
    return r ? std::move(r) : result<T>(answer_of(r.error()));
}

template<class Table, class Decide>
task<result<void>> decide(Table& table, files::demand what, Decide& ask, files::client_id client)
{
    int tries = most_dropped;
    for (;;) {
        const result<void> answer = ask();
        if (answer)
            co_return answer;
        const bool more = co_await find_more(table, client, answer.error(), tries);
        if (more)
            continue;
        if (answer.error() != errc::in_way)
            co_return answer_of(answer);
        const result<void> made = co_await table.make_way(what, patience);
        if (!made)
            co_return answer_of(made);
    }
}

// What a client that never says that it took back all gets now it may take back after the next start. Before that is sure, it gets nothing.
// The same holds for what keeps others from reading or writing, as these wait after a start only for clients of whom that is written down.
// If the store refuses, an open is granted without what it `may` bring besides.
task<result<void>> write_down(files::state_table& table, files::client_id client, files::share keeps_out,
                              files::share may)
{
    if (!table.lacks_record(client, keeps_out | may))
        co_return result<void>();
    const result<void> written = co_await table.book().record(client, keeps_out | may);
    co_return table.lacks_record(client, keeps_out) ? answer_of(written) : result<void>();
}

// What is granted by end_open(). Until then nobody gets in its way.
task<result<void>> begin_open(files::state_table& table, const files::open_request* request,
                              files::pending_open* pending)
{
    const auto ask = [&] { return table.begin_open(*request, *pending); };
    result<void> begun = co_await decide(table, files::demand(*request), ask, request->client);
    // A client that has to open what it has open under a delegation can't do without: it closes something else meanwhile.
    if (!begun && begun.error() == errc::too_many_opens &&
        request->claim == files::open_claim::under_delegation)
        begun = error(errc::busy, "too many opens");
    if (begun)
        begun = co_await write_down(table, request->client, table.surely_keeps_out(*request),
                                    table.may_keep_out(*request));
    if (!begun)
        co_return begun;
    // Nobody begins to read or write any more what it denies, and who began before is waited for. What is reclaimed was denied then already.
    if (any(request->deny) && request->claim != files::open_claim::reclaim) {
        const result<void> alone =
            co_await table.commons().operations().ended(request->file.key, request->deny, patience);
        if (!alone)
            co_return answer_of(alone);
    }
    // What its client had may have been taken meanwhile, and others have been let in: it must not cut the file.
    co_return answer_of(table.may_commit(*pending));
}

task<result<files::opened>> end_open(files::state_table& table, const files::open_request* request,
                                     const state_home::opening* file, files::pending_open* begun)
{
    files::pending_open& pending = *begun;
    // Whoever the delegation is in the way of waits from here on; and whoever is not asked here, on the lease.
    if (const auto reserved = table.reserve_delegation(pending)) {
        storage::lease_wanted wanted = [&table, id = *reserved] { (void)table.recall(id); };
        auto taking = file->backend->lease(file->file, std::move(wanted));
        auto lease = co_await taking;
        // What local processes did while the server was away its holder has not seen.
        if (lease && request->claim == files::open_claim::reclaim) {
            const auto attrs = co_await file->backend->getattr(file->request, file->file);
            if (!attrs || attrs->ctime.seconds >= table.options().reclaimed_unchanged)
                pending.set_gives_back();
        }
        if (lease) {
            pending.set_lease(std::move(*lease));
        } else {
            const storage::no_lease why = storage::why_no_lease(lease.error());
            pending.set_lease(why);
            if (why == storage::no_lease::limit)
                table.lacks_leases();
        }
    }
    const result<files::opened> done = table.commit(pending);
    // What was reclaimed its holder may have changed before the restart.
    if (done && done->delegation && done->delegation->type == files::delegation_type::write &&
        request->claim != files::open_claim::reclaim) {
        const auto attrs = co_await file->backend->getattr(file->request, file->file);
        table.note_change(done->delegation->id, attrs ? std::optional(change_of(*attrs)) : std::nullopt);
    }
    co_return done;
}

task<result<files::opened>> open_here(files::state_table& table, const files::open_request* request,
                                      const state_home::opening* file)
{
    files::pending_open pending;
    const result<void> begun = co_await begin_open(table, request, &pending);
    if (!begun)
        co_return begun.error();
    co_return co_await end_open(table, request, file, &pending);
}

task<result<void>> promise_open_here(files::state_table& table, files::client_id client,
                                     std::span<const std::byte> owner, files::share deny)
{
    int tries = most_dropped;
    for (;;) {
        const result<void> answer = table.may_open(client, owner);
        if (answer)
            co_return co_await write_down(table, client, deny, files::share::none);
        const bool more = co_await find_more(table, client, answer.error(), tries);
        if (!more)
            co_return answer_of(answer);
    }
}

task<result<void>> way_here(files::state_table& table, files::client_id client,
                            const files::exported_file* file, files::operation op, bool is_anybody = false)
{
    const files::demand what(op, *file, client);
    const auto ask = [&] { return table.check(what); };
    const auto is_kept = [&] {
        return op == files::operation::remove && !is_anybody && table.is_denied_removal(file->key, client);
    };
    if (is_kept()) // before delegations are recalled for it
        co_return error(errc::removal_denied);
    const result<void> made = co_await decide(table, what, ask, client);
    if (made && is_kept())
        co_return error(errc::removal_denied);
    co_return made;
}

// Whose layouts are recalled before others of the shard have their turn.
constexpr std::size_t files_at_once = 256;

using files_concerned = std::function<bool(const storage::handle&)>;

// Of one home. Who has nothing to wait for asks alone.
task<result<void>> way_in_here(files::state_table& table, std::uint32_t space, files::operation op,
                               const files_concerned* concerns, time_point until)
{
    const task_context& context = co_await current_context();
    const std::vector<storage::handle> all = table.files_with_kinds(space);
    std::size_t looked_at = 0;
    for (const storage::handle& key : all) {
        if (++looked_at % files_at_once == 0)
            co_await yield();
        const auto named = files::open_file_key(key);
        if (!named || !(*concerns)(named->file))
            continue;
        const time_point now = context.shard->clock().now();
        files::demand what(op, files::exported_file(key, 0));
        what.without_rest();
        task<result<void>> making = table.make_way(what, until > now ? until - now : duration::zero());
        const result<void> made = co_await making;
        if (!made && until != time_point())
            co_return answer_of(made);
    }
    co_return result<void>();
}

// On the clients' home.
task<result<held_attributes>> ask_holder(shard& home, holder_inquiry* inquiry,
                                         const files::state_table::writer* writer,
                                         const files::exported_file* file)
{
    const auto ask = [=] { return inquiry->ask(writer->client, writer->id, *file, patience); };
    return home.reactor().is_here() ? ask() : home.run(ask);
}

task<result<std::optional<kept_attributes>>> look_here(files::state_table& table, shard* clients,
                                                       holder_inquiry* inquiry, files::client_id client,
                                                       const state_home::looking* file)
{
    const auto writer = inquiry == nullptr ? std::nullopt : table.writer_of(file->known, client);
    if (writer) {
        const files::exported_file of_holder(file->known.key, writer->via);
        const auto said = co_await ask_holder(*clients, inquiry, &*writer, &of_holder);
        bool has_own_size = said && said->size != file->before.size;
        // What it has sent since then is the server's, and no change that it keeps.
        if (has_own_size) {
            const auto now = co_await file->backend->getattr(file->request, file->file);
            has_own_size = !now || said->size != now->size;
        }
        // It may have come back meanwhile, or be wanted back for more than this.
        const auto noted =
            said ? table.note_answer(writer->id, said->change, has_own_size, change_of(file->before))
                 : std::nullopt;
        if (noted)
            co_return std::optional(kept_attributes{noted->modified, said->size, noted->change});
    }
    const result<void> made =
        co_await way_here(table, client, &file->known, files::operation::get_attributes);
    if (!made)
        co_return made.error();
    co_return std::optional<kept_attributes>();
}

task<result<void>> free_here(files::state_table& table, files::client_id client, files::stateid id,
                             state_home::losses* left)
{
    const result<void> done = co_await table.free_stateid(client, id);
    left->revoked = table.has_revoked(client);
    left->by_admin = table.has_lost_by_admin(client);
    co_return answer_of(done);
}

task<result<void>> check_here(files::state_table& table, files::client_id client, files::stateid id,
                              const files::exported_file* file, files::operation op,
                              state_home::io_terms* terms)
{
    result<files::io_grant> granted = table.check_io(client, id, *file, op);
    if (!granted && granted.error() == errc::in_way) { // which is seldom
        files::demand what(op, *file, client);
        what.past_denies();
        const auto ask = [&]() -> result<void> {
            granted = table.check_io(client, id, *file, op);
            return granted ? result<void>() : result<void>(granted.error());
        };
        const result<void> answer = co_await decide(table, what, ask, client);
        if (!answer)
            co_return answer;
    }
    if (!granted)
        co_return answer_of(granted.error());
    *terms = std::move(*granted);
    co_return result<void>();
}

task<result<void>> check_without_open_here(files::state_table& table, files::client_id client,
                                           const files::exported_file* file, files::operation op,
                                           bool past_denies)
{
    files::demand what(op, *file, client);
    if (past_denies && op == files::operation::read)
        what.past_denies();
    const auto ask = [&] { return table.check(what); };
    co_return co_await decide(table, what, ask, client);
}

task<result<files::stateid>> lock_here(files::state_table& table, const files::lock_request* request,
                                       files::lock_holder* holder)
{
    result<files::stateid> granted = error(errc::denied);
    files::pending_lock local;
    const auto ask = [&]() -> result<void> {
        granted = table.lock(*request, holder, files::zero_seqid::newest, &local);
        return granted || local.asks_back_end() ? result<void>() : result<void>(granted.error());
    };
    result<void> done = co_await write_down(table, request->client, files::share::none, files::share::none);
    if (done)
        done = co_await decide(table, files::demand(*request), ask, request->client);
    if (local.asks_back_end()) {
        done = co_await table.lock_locally(local, *request, holder);
        if (done)
            done = ask();
        if (const files::back_end_locks unsettled = local.take_unsettled())
            co_await unsettled->settle();
    }
    if (!done)
        co_return answer_of(done.error());
    co_return granted;
}

task<void> settle_here(files::back_end_locks* unsettled)
{
    const files::back_end_locks last = std::move(*unsettled); // it goes here, at home
    co_await last->settle();
}

using files::client_book;

task<result<void>> forget_here(client_book& book, files::client_id client,
                               client_book::fences wait = client_book::fences::awaited)
{
    const result<void> done = co_await book.forget(client, wait);
    // Somebody else was quicker.
    if (!done && done.error() == errc::stale_client)
        co_return result<void>();
    co_return answer_of(done);
}

task<result<void>> refused_here(errc why) { co_return error(why); }

task<result<void>> complete_here(client_book& book, files::client_id client)
{
    const result<void> done = co_await book.reclaim_complete(client);
    co_return answer_of(done);
}

} // namespace

std::uint64_t change_of(const storage::attributes& attrs) noexcept
{
    if (attrs.change)
        return *attrs.change;
    return static_cast<std::uint64_t>(attrs.ctime.seconds) * 1'000'000'000 + attrs.ctime.nanoseconds;
}

void kept_attributes::apply(storage::attributes& attrs) const noexcept
{
    if (!modified)
        return;
    attrs.size = size;
    std::timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    attrs.mtime = attrs.ctime = {now.tv_sec, static_cast<std::uint32_t>(now.tv_nsec)};
}

class state_home::begun_open final : public remote_message, public list_hook {
public:
    explicit begun_open(file_home& h) noexcept : home(h) {}
    void deliver() noexcept override { delete this; }
    void end() noexcept
    {
        pending.reset();
        unlink();
    }
    file_home& home;
    // Home's. Its caller reads whether there is one between its calls there, of which each ends after the one before.
    std::optional<files::pending_open> pending;
};

state_home::state_home(std::span<shard* const> homes, files::recovery_store& store,
                       files::state_handler& handler, files::state_options options, const siphash_key& key)
    : home_(*homes.front()),
      commons_(key, unsigned(homes.size())),
      book_(commons_, home_, store, handler, std::move(options))
{
    for (shard* const home : homes)
        homes_.emplace_back(*this, unsigned(homes_.size()), *home, handler);
}

void state_home::give_home::operator()(begun_open* b) const noexcept
{
    reactor& home = b->home.where.reactor();
    if (!b->pending || home.is_here())
        delete b;
    else
        home.post_remote(*b);
}

// What still stands begun is on its way to a home that has stopped, and ends with that one's messages.
state_home::~state_home()
{
    for (file_home& home : homes_)
        while (list_hook* const left = home.begun.front())
            static_cast<begun_open*>(left)->end();
}

task<result<state_home::added>> state_home::add_client(std::string_view key, std::uint64_t peer,
                                                       const files::client_label& label)
{
    return at_clients([key, peer, l = &label, this](client_book&) { return add_here(key, peer, l); });
}

task<result<state_home::added>> state_home::add_here(std::string_view key, std::uint64_t peer,
                                                     const files::client_label* label)
{
    // One that is still to be forgotten may have had the same name: the end of its record would be that of the new one's.
    co_await forget_abandoned();
    if (!abandoned_.empty())
        co_return error(errc::busy, "a client that is still to be forgotten");
    const auto made = book_.add_client(key, peer, *label);
    if (!made)
        co_return answer_of(made.error());
    added out;
    out.client = *made;
    const auto reclaims = book_.must_reclaim(*made);
    out.must_reclaim = reclaims && *reclaims;
    co_return out;
}

task<result<void>> state_home::renew(files::client_id client, losses& lost)
{
    return at_clients([client, &lost](client_book& b) {
        lost = {b.has_revoked(client), b.has_lost_with_lease(client), b.has_lost_by_admin(client)};
        return b.renew(client);
    });
}

task<result<void>> state_home::set_callable(files::client_id client)
{
    return at_clients([client](client_book& b) { return b.set_callable(client, true); });
}

task<result<void>> state_home::forget(files::client_id client)
{
    return at_clients([client](client_book& b) { return forget_here(b, client); });
}

bool state_home::yields(files::client_id client, name_rule rule)
{
    // What is being written of it may be that it opens something.
    if (book_.is_being_written(client))
        return false;
    const auto is = book_.state_of(client);
    const auto used = book_.is_in_use(client);
    const bool active = is && *is == files::client_state::active;
    const bool in_use = used && *used;
    return !active || (!in_use && rule == name_rule::unused);
}

task<result<void>> state_home::take_name(files::client_id client, name_rule rule)
{
    // Nothing comes between the question and the end of what it has: see client_book::take().
    return at_clients([client, rule, this](client_book& b) -> task<result<void>> {
        if (rule != name_rule::at_once && !yields(client, rule))
            return refused_here(errc::client_busy);
        return forget_here(b, client);
    });
}

task<void> state_home::abandon(files::client_id client)
{
    return at_clients([client, this](client_book&) -> task<void> {
        if (std::ranges::find(abandoned_, client) == abandoned_.end())
            abandoned_.push_back(client);
        return forget_abandoned();
    });
}

task<void> state_home::forget_abandoned()
{
    const std::vector<files::client_id> all = abandoned_;
    for (const files::client_id client : all) {
        const result<void> gone = co_await forget_here(book_, client, client_book::fences::left);
        if (gone)
            std::erase(abandoned_, client);
    }
}

task<state_home::life> state_home::life_of(files::client_id client)
{
    return at_clients([client](client_book& b) {
        const auto is = b.state_of(client);
        const auto used = b.is_in_use(client);
        return life{is && *is == files::client_state::active, used && *used};
    });
}

task<result<void>> state_home::reclaim_complete(files::client_id client)
{
    return at_clients([client](client_book& b) { return complete_here(b, client); });
}

task<files::exported_file> state_home::file_of_delegation(files::client_id client, const files::stateid& id)
{
    return at_home_of(id, [client, id](files::state_table& t) {
        const auto holder = t.holder_of(id);
        const bool is_its = holder && holder->client == client && !holder->has_owner;
        return is_its ? holder->file : files::exported_file();
    });
}

task<result<void>> state_home::promise_open(files::client_id client, std::span<const std::byte> owner,
                                            files::share deny)
{
    // No file has a say in it.
    return at(homes_.front(), [client, owner, deny](files::state_table& t) {
        return promise_open_here(t, client, owner, deny);
    });
}

task<result<files::opened>> state_home::open(const files::open_request& request, const opening& file)
{
    if (request.truncates)
        return open_and_cut(request, file);
    return at_home_of(request.file.key,
                      [r = &request, f = &file](files::state_table& t) { return open_here(t, r, f); });
}

// The file is cut on the caller's shard, as a disk may take its time. What is begun stands at home meanwhile, and
// nobody gets in its way.
task<result<files::opened>> state_home::open_and_cut(const files::open_request& request, const opening& file)
{
    file_home& home = homes_[commons_.home_of(request.file.key)];
    const std::unique_ptr<begun_open, give_home> begun(new begun_open(home));
    auto begin = [r = &request, b = begun.get()](files::state_table&) { return begin_to_cut(r, b); };
    const result<void> may = co_await at(home, std::move(begin));
    if (!may)
        co_return may.error();
    result<storage::change> cut = error(errc::expired, "what the client had was taken");
    if (!begun->pending->is_dropped()) { // also on the way here
        files::under_way cutting;
        cutting.begin(*file.here, file.space, file.file, files::operation::set_size);
        storage::set_attributes none;
        none.size = 0;
        cut = co_await file.backend->setattr(file.request, file.file, none, std::nullopt);
    }
    auto end = [r = &request, f = &file, b = begun.get(), c = &cut](files::state_table&) {
        return end_cut(r, f, b, c);
    };
    co_return co_await at(home, std::move(end));
}

task<result<void>> state_home::begin_to_cut(const files::open_request* request, begun_open* begun)
{
    begun->pending.emplace();
    begun->home.begun.push_back(*begun);
    const result<void> may = co_await begin_open(begun->home.table, request, &*begun->pending);
    if (!may)
        begun->end();
    co_return may;
}

task<result<files::opened>> state_home::end_cut(const files::open_request* request, const opening* file,
                                                begun_open* begun, const result<storage::change>* cut)
{
    result<files::opened> done = error(errc::busy);
    if (*cut) {
        begun->pending->set_change((*cut)->after ? std::optional(change_of(*(*cut)->after)) : std::nullopt);
        done = co_await end_open(begun->home.table, request, file, &*begun->pending);
    } else {
        done = (*cut).error();
    }
    begun->end();
    co_return done;
}

task<result<void>> state_home::close(files::client_id client, const files::stateid& id,
                                     const files::exported_file& file, files::back_end_locks* unsettled)
{
    return at_home_of(file.key, [client, id, f = &file, unsettled](files::state_table& t) {
        return t.close(client, id, *f, files::zero_seqid::newest, unsettled);
    });
}

task<result<files::stateid>> state_home::downgrade(files::client_id client, const files::stateid& id,
                                                   const files::exported_file& file, files::share access,
                                                   files::share deny)
{
    return at_home_of(file.key, [client, id, f = &file, access, deny](files::state_table& t) {
        return t.downgrade(client, id, *f, access, deny);
    });
}

task<result<void>> state_home::check_io(files::client_id client, const files::stateid& id,
                                        const files::exported_file& file, files::operation op,
                                        io_terms& terms)
{
    return at_home_of(file.key, [client, id, f = &file, op, to = &terms](files::state_table& t) {
        return check_here(t, client, id, f, op, to);
    });
}

task<result<void>> state_home::check_io_without_open(files::client_id client,
                                                     const files::exported_file& file, files::operation op,
                                                     bool past_denies)
{
    return at_home_of(file.key, [client, f = &file, op, past_denies](files::state_table& t) {
        return check_without_open_here(t, client, f, op, past_denies);
    });
}

task<std::vector<result<void>>> state_home::test(files::client_id client, std::span<const files::stateid> ids)
{
    if (homes() > 1)
        return test_at_each(client, ids);
    return at(homes_.front(), [client, ids](files::state_table& t) {
        std::vector<result<void>> answers;
        answers.reserve(ids.size());
        for (const files::stateid& id : ids)
            answers.push_back(t.test_stateid(client, id));
        return answers;
    });
}

// Each home those that it may have given out, in one visit.
task<std::vector<result<void>>> state_home::test_at_each(files::client_id client,
                                                         std::span<const files::stateid> ids)
{
    std::vector<result<void>> answers(ids.size(), result<void>(error(errc::busy, "that home has stopped")));
    for (unsigned home = 0; home < homes(); ++home) {
        const auto is_there = [&](const files::stateid& id) { return commons_.home_of(id) == home; };
        if (std::ranges::none_of(ids, is_there))
            continue;
        const auto test = [&](files::state_table& t) -> result<void> {
            for (std::size_t i = 0; i < ids.size(); ++i)
                if (is_there(ids[i]))
                    answers[i] = t.test_stateid(client, ids[i]);
            return {};
        };
        (void)co_await at(homes_[home], test);
    }
    co_return answers;
}

task<result<void>> state_home::make_way(files::client_id client, const files::exported_file& file,
                                        files::operation op, bool is_anybody)
{
    return at_home_of(file.key, [client, f = &file, op, is_anybody](files::state_table& t) {
        return way_here(t, client, f, op, is_anybody);
    });
}

task<result<void>> state_home::make_way_in(std::uint32_t space, files::operation op,
                                           const files_concerned& concerns, time_point until)
{
    // All clients are asked before any is waited for.
    for (const time_point limit : {time_point(), until})
        for (file_home& home : homes_) {
            const auto make = [space, op, limit, c = &concerns](files::state_table& t) {
                return way_in_here(t, space, op, c, limit);
            };
            auto making = at(home, make);
            const result<void> made = co_await making;
            if (!made)
                co_return made;
        }
    co_return result<void>();
}

task<result<std::optional<kept_attributes>>> state_home::look(files::client_id client, const looking& file)
{
    return at_home_of(file.known.key, [client, f = &file, this](files::state_table& t) {
        return look_here(t, &home_, inquiry_, client, f);
    });
}

task<result<void>> state_home::return_delegation(files::client_id client, const files::stateid& id,
                                                 const files::exported_file& file)
{
    return at_home_of(file.key, [client, id, f = &file](files::state_table& t) {
        return t.return_delegation(client, id, *f);
    });
}

task<result<void>> state_home::free(files::client_id client, const files::stateid& id, losses& left)
{
    return at_home_of(id,
                      [client, id, l = &left](files::state_table& t) { return free_here(t, client, id, l); });
}

task<result<files::stateid>> state_home::lock(const files::lock_request& request, files::lock_holder& holder)
{
    return at_home_of(request.file.key,
                      [r = &request, h = &holder](files::state_table& t) { return lock_here(t, r, h); });
}

task<result<void>> state_home::test_lock(files::client_id client, const storage::handle& file,
                                         std::span<const std::byte> owner, const files::byte_range& bytes,
                                         files::lock_type type, files::lock_holder& holder,
                                         files::back_end_locks* asks)
{
    return at_home_of(file,
                      [client, f = &file, owner, bytes, type, h = &holder, asks](files::state_table& t) {
                          return t.test_lock(client, *f, owner, bytes, type, h, asks);
                      });
}

task<result<void>> state_home::test_locally(const storage::handle& file, files::back_end_locks& asks,
                                            const files::byte_range& bytes, files::lock_type type,
                                            files::lock_holder& holder)
{
    return at_home_of(file, [a = &asks, bytes, type, h = &holder](files::state_table& t) {
        return t.test_locally(std::move(*a), bytes, type, h);
    });
}

task<result<files::stateid>> state_home::unlock(files::client_id client, const files::stateid& id,
                                                const files::exported_file& file,
                                                const files::byte_range& bytes,
                                                files::back_end_locks* unsettled)
{
    return at_home_of(file.key, [client, id, f = &file, bytes, unsettled](files::state_table& t) {
        return t.unlock(client, id, *f, bytes, files::zero_seqid::newest, unsettled);
    });
}

task<void> state_home::settle(const storage::handle& file, files::back_end_locks& unsettled)
{
    return at_home_of(file, [u = &unsettled](files::state_table&) { return settle_here(u); });
}

} // namespace verbena::nfs
