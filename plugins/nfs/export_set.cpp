// SPDX-License-Identifier: Apache-2.0
#include "export_set.hpp"
#include "shared_trees.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <functional>
#include <map>
#include <new>
#include <pthread.h>
#include <system_error>
#include <utility>

namespace verbena::nfs {

namespace {

// The thread that closes exports looks that often whether somebody still uses one, and whether a disk answers on which one was
// opened for nothing.
constexpr std::chrono::milliseconds look_again{20};
constexpr std::chrono::milliseconds look_at_disks{100};
constexpr const char* closing_lane = "closing exports"; // the thread's name, too: 15 characters at most

// What is waited for, for people.
constexpr const char* waits_for_calls = "calls of clients that use it: see verbena admin requests";
constexpr const char* waits_for_state = "what clients have of it, which is being taken";
constexpr const char* waits_for_looks = "a command or a scrape that looks at it";
constexpr const char* waits_for_disk =
    "its disk; if that does not answer, look at what is beneath: the folder is in use until it does";

/// The end of a back end, which closes files: a disk may hang then. Deletes itself.
class end_of_back_end final : public blocking_pool::job {
public:
    explicit end_of_back_end(std::shared_ptr<export_backend> of)
        : of_(std::move(of)), over_(std::make_shared<std::atomic<bool>>(false))
    {
    }
    ~end_of_back_end() = default;
    /// True when it has ended. Outlives this.
    std::shared_ptr<const std::atomic<bool>> over() const noexcept { return over_; }
    void execute() noexcept override
    {
        of_.reset();
        over_->store(true, std::memory_order_release);
        delete this;
    }
    void deliver() noexcept override {}

private:
    std::shared_ptr<export_backend> of_; // the last one
    const std::shared_ptr<std::atomic<bool>> over_;
};

// False: the lane has ended. Then the caller has the job still.
bool begin_end(blocking_pool& lane, std::unique_ptr<end_of_back_end>& job) noexcept
{
    if (!lane.submit(*job))
        return false;
    [[maybe_unused]] const auto* const deletes_itself = job.release();
    return true;
}

/// One that is to end when nothing runs on its lane any more.
struct leaving_back_end {
    explicit leaving_back_end(std::shared_ptr<export_backend> b)
        : of(std::move(b)), job(std::make_unique<end_of_back_end>(of)), over(job->over())
    {
    }
    /// Begins its end, if that waits for nothing. True: it has ended.
    bool has_ended(blocking_pool& lane) noexcept
    {
        if (job != nullptr && (of == nullptr || close_within(*of, std::chrono::milliseconds(0)))) {
            of.reset();
            begin_end(lane, job);
        }
        return over->load(std::memory_order_acquire);
    }
    std::shared_ptr<export_backend> of; // until its end begins
    std::unique_ptr<end_of_back_end> job;
    std::shared_ptr<const std::atomic<bool>> over;
};

// A root that was not there when it was opened is not served when it comes.
void leave_root_alone(const export_backend& of) noexcept
{
    try {
        if (of.opened.not_wanted)
            of.opened.not_wanted();
    } catch (const std::exception&) { // a module's own
    }
}

using state_table = files::state_table;

std::int64_t nanoseconds_since_1970()
{
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// What was said of each before the others were known, and what follows from these.
void warn_of_shared_trees(const export_set::exports& all, const export_list& list)
{
    std::vector<export_config> configs;
    for (const auto& each : all)
        configs.push_back(each->config);
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::string& text = all[i]->as.warning;
        text = all[i]->backend->opened.warning;
        const std::string more = warning_of_shared_tree(list, configs, i);
        text += (text.empty() || more.empty() ? "" : "; ") + more;
    }
}

} // namespace

/// A reload's way round the shards.
struct export_set::round {
    explicit round(std::size_t shards) : took(shards) {}
    void note(std::size_t shard)
    {
        const std::lock_guard lock(mutex);
        took[shard] = true;
        ++count;
        changed.notify_all();
    }
    bool all_took()
    {
        const std::lock_guard lock(mutex);
        return count == took.size();
    }
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> took;
    std::size_t count = 0;
    std::size_t with_losses =
        0; // those of this reload whose first losses are not taken yet: what clients had of them
};

/// A list of exports on its way to a shard, which takes it when it turns.
class export_set::taking final : public remote_message {
public:
    taking(export_table& table, std::shared_ptr<const export_list> list, std::shared_ptr<round> of,
           shard& s) noexcept
        : table_(table), list_(std::move(list)), round_(std::move(of)), shard_(s)
    {
    }
    /// New exports, whose room this shard asks for from then on.
    void tend(const exports& opened)
    {
        for (const auto& e : opened)
            tended_.push_back(e->backend);
    }
    void deliver() noexcept override
    {
        const std::unique_ptr<taking> ends(this);
        table_.take(*list_);
        for (std::size_t i = 0; i < tended_.size(); ++i)
            begin(*tended_[i], export_room::first_of(i, tended_.size()));
        round_->note(shard_.index());
    }

private:
    void begin(export_backend& of, duration first) noexcept
    {
        try {
            shard_.tasks().spawn(already_made, of.room.tend(*of.beneath, first));
        } catch (const std::exception& e) { // no memory
            log(log_level::warning, "nfs", "the room of an export is not asked for", {{"cause", e.what()}});
        }
    }
    export_table& table_;
    const std::shared_ptr<const export_list> list_;
    const std::shared_ptr<round> round_;
    shard& shard_;
    std::vector<std::shared_ptr<export_backend>> tended_;
};

/// An export that a reload took away, or all those that it changed. What clients have of them is taken.
struct export_set::closing {
    /// One that is served on, by other rules. Layouts go: whoever is no longer admitted reaches memory with them.
    struct narrowed {
        std::uint32_t id;
        client_list clients;
        bool has_layouts;
        lost_delegations lost;
    };
    std::shared_ptr<served_export> gone; // nullptr if there is none, and once it is closed
    std::vector<narrowed> stay;
    runtime* shards = nullptr;
    v4::server_commons* commons = nullptr;
    std::shared_ptr<round> taken;
    enum class phase : std::uint8_t { waits, runs, dropped, ended } now = phase::waits;
    std::string failed;                      // why `gone` stays open until the end; of the mutex, as `now`
    const char* waits_for = waits_for_calls; // likewise
    stepped steps;                           // of close(), once it has begun
    bool is_open() const noexcept { return gone != nullptr && (now == phase::runs || now == phase::ended); }
};

class export_set::change final : public reload_plan {
public:
    change(export_set& of, const terms& by)
        : of_(of), shards_(by.host.shards()), patience_(by.patience), close_patience_(by.close_patience)
    {
    }
    ~change() override
    {
        of_.give_up(held, close_patience_);
        if (workers.empty())
            return;
        const std::lock_guard lock(of_.mutex_);
        for (closing* const worker : workers)
            worker->now = closing::phase::dropped;
        of_.changed_.notify_all();
    }
    void apply() noexcept override;

    std::shared_ptr<export_list> list;
    exports served;
    exports opened;         // new ones, until they are served
    std::list<parked> held; // their back ends, and that of one that could not be opened
    std::vector<std::pair<storage::file_backend*, bool>> refuses;
    std::vector<closing*> workers; // until they run: one for each export that goes, one for all that stay
    std::shared_ptr<round> taken;
    std::vector<std::unique_ptr<taking>> messages;

private:
    export_set& of_;
    runtime& shards_;
    const std::chrono::milliseconds patience_;
    const std::chrono::milliseconds close_patience_;
};

export_set::export_set(export_table& table) noexcept : table_(table) {}

export_set::~export_set() { stop(); }

void export_set::open(module_host& host, std::vector<export_config> wanted,
                      std::span<const listen_target> targets, hung_wait& wait)
{
    std::list<parked> held; // what hangs when the start fails
    try {
        for (export_config& e : wanted) {
            held.push_back({nullptr, e.pseudo});
            begin_export(host, e, held.back().backend, wait);
        }
        for (const export_config& e : wanted)
            at_place_of_start(e.place, [&] {
                auto made = open_export(host, e, targets);
                // Kept first: the table's entry points to it.
                served_.push_back(made);
                if (const auto added = table_.add(made->options); !added)
                    throw config_error("export " + e.pseudo + ": " + added.error().message());
                made->options = table_.all().back();
            });
    } catch (...) {
        std::erase_if(held, [this](const parked& p) {
            return std::ranges::any_of(served_, [&p](const auto& e) { return e->backend == p.backend; });
        });
        give_up(held, usual_close_patience);
        throw;
    }
    warn_of_shared_trees(served_, table_.now());
}

export_set::exports export_set::all() const
{
    const std::lock_guard lock(mutex_);
    return served_;
}

std::vector<export_set::leaving> export_set::all_leaving() const
{
    std::vector<leaving> out;
    const std::lock_guard lock(mutex_);
    for (const closing& c : closing_)
        if (c.is_open())
            out.push_back({c.gone->as, c.gone->config.backend_name,
                           c.failed.empty() ? std::string("waits for ") + c.waits_for
                                            : "could not be closed (" + c.failed +
                                                  "): restart the program to unmount its folder"});
    return out;
}

export_set::unclosed export_set::count_unclosed() const
{
    unclosed out;
    const std::lock_guard lock(mutex_);
    out.removed = std::size_t(std::ranges::count_if(closing_, &closing::is_open));
    out.unused = std::size_t(std::ranges::count(parked_, 0u, &parked::space));
    return out;
}

std::unique_ptr<reload_plan> export_set::plan(const terms& by, std::vector<export_config> wanted,
                                              bool looks_only)
{
    runtime& shards = by.host.shards();
    forget_closed();
    const std::shared_ptr<const export_list> before = table_.newest();
    auto made = std::make_unique<change>(*this, by);
    exports gone;
    std::vector<closing::narrowed> stay;
    std::map<std::string, std::string> is_closing; // and why it can't be had
    std::size_t kept = 0, hanging = 0;
    {
        const std::lock_guard lock(mutex_);
        kept = std::size_t(std::ranges::count(parked_, 0u, &parked::space));
        for (const closing& c : closing_)
            if (c.gone != nullptr)
                is_closing.emplace(c.gone->config.pseudo,
                                   c.failed.empty()
                                       ? std::string("is not closed yet: it waits for ") + c.waits_for +
                                             ". Reload again when it is closed (verbena admin exports)"
                                       : "could not be closed (" + c.failed +
                                             "): restart the program to serve it again");
    }
    const exports running = all();
    bool differs = false;
    for (const auto& each : running) {
        const auto same = [&each](const export_config& e) { return e.pseudo == each->config.pseudo; };
        const auto now = std::ranges::find_if(wanted, same);
        const std::string name = "export " + each->config.pseudo;
        if (now == wanted.end()) {
            made->changes.push_back({name, "removed", false});
            gone.push_back(each);
            differs = true;
            continue;
        }
        if (const std::string why = needs_another_backend(each->config, *now); !why.empty()) {
            made->changes.push_back({name, why, true});
            made->served.push_back(std::make_shared<served_export>(*each));
            continue;
        }
        const std::string what = changes_in_place(each->config, *now);
        made->served.push_back(change_export(*each, *now));
        if (what.empty())
            continue;
        made->changes.push_back({name, what, false});
        if (each->config.read_only != now->read_only)
            made->refuses.emplace_back(each->options.backend, now->read_only);
        const lost_delegations lost = lost_by_change(each->config, *now);
        if (each->config.pnfs || lost != lost_delegations::none)
            stay.push_back({each->options.id, made->served.back()->options.clients, each->config.pnfs, lost});
        differs = true;
    }
    const opened_for what = looks_only ? opened_for::a_look : opened_for::serving;
    hung_wait wait;
    std::vector<std::pair<export_config*, parked*>> begun;
    for (export_config& e : wanted) {
        const auto same = [&e](const auto& each) { return e.pseudo == each->config.pseudo; };
        if (std::ranges::any_of(running, same))
            continue;
        if (e.pnfs && !by.gives_layouts) {
            made->changes.push_back({"export " + e.pseudo, "added, with the first pnfs", true});
            continue;
        }
        if (const auto found = is_closing.find(e.pseudo); found != is_closing.end())
            throw start_error(e.place, "export " + e.pseudo + ": it was removed by a reload before, and " +
                                           found->second);
        parked& held = made->held.emplace_back();
        held.pseudo = e.pseudo;
        begun.emplace_back(&e, &held);
    }
    const std::size_t most = by.parked;
    const auto refuse_more = [&] {
        if (kept + hanging >= most)
            throw start_error(
                "the disks of " + std::to_string(kept + hanging) +
                " exports that were opened before, and are served no more, do not answer: look "
                "at what is beneath (verbena_blocking_longest_seconds), or restart the program");
    };
    // As many are begun before one is waited for as may be kept if none of their disks answers.
    for (auto next = begun.begin(); next != begun.end();) {
        refuse_more();
        const auto more = std::min<std::size_t>(most - kept - hanging, std::size_t(begun.end() - next));
        const auto end = next + std::ptrdiff_t(more);
        for (auto b = next; b != end; ++b)
            begin_export(by.host, *b->first, b->second->backend, wait, what);
        for (; next != end; ++next) {
            const export_config& e = *next->first;
            parked& held = *next->second;
            at_place_of_start(e.place, [&] { made->opened.push_back(open_export(by.host, e, by.targets)); });
            const blocking_pool::occupation is = held.backend->lane->look();
            hanging += is.running + is.queued != 0;
            made->served.push_back(made->opened.back());
            made->changes.push_back({"export " + e.pseudo,
                                     "added: " + made->opened.back()->as.source + ", " +
                                         made->opened.back()->as.options + ", for " +
                                         made->opened.back()->as.clients,
                                     false});
            differs = true;
        }
    }
    made->list = std::make_shared<export_list>(*before, nanoseconds_since_1970());
    for (const auto& e : made->served)
        at_place(e->config.place, [&] {
            if (const auto added = made->list->add(e->options); !added)
                throw config_error("export " + e->config.pseudo + ": " + added.error().message());
            e->options = made->list->all().back();
        });
    // It would have the file system open, which whoever suspended the others wants to unmount.
    for (const auto& e : made->opened)
        if (const auto found = by.suspended.find(e->options.space); found != by.suspended.end())
            throw start_error(e->config.place, "export " + e->config.pseudo +
                                                   ": its file system is that of export " + found->second +
                                                   ", which is suspended: resume that first (verbena admin "
                                                   "resume), then reload");
    if (!by.allow_public)
        refuse_public(made->served, by.targets);
    refuse_exported_state(made->served, by.state, wait);
    warn_of_shared_trees(made->served, *made->list);
    if (!differs)
        made->list = nullptr;
    if (looks_only || !differs)
        return made;
    if (table_.drop_old() >= most_old_lists)
        throw start_error("calls that began before the last " + std::to_string(most_old_lists) +
                          " reloads have not ended: see what they wait for (verbena admin requests), and "
                          "reload again");
    // What needs memory or a thread comes here: apply() can't fail.
    made->taken = std::make_shared<round>(shards.size());
    for (std::size_t i = 0; i < shards.size(); ++i)
        made->messages.push_back(std::make_unique<taking>(table_, made->list, made->taken, shards.at(i)));
    made->messages.front()->tend(made->opened);
    if (gone.empty() && (stay.empty() || by.commons == nullptr))
        return made;
    begin_keeper(shards);
    const std::lock_guard lock(mutex_);
    // What is being closed may have to stay, too, where it is of a tree that is served on.
    std::size_t may_stay = parked_.size();
    const auto may = [&made](const served_export& e) {
        return std::ranges::any_of(
            made->served, [&e](const auto& other) { return other->options.space == e.options.space; });
    };
    for (const auto& e : gone)
        may_stay += may(*e);
    for (const closing& c : closing_)
        may_stay += c.gone != nullptr && may(*c.gone);
    if (may_stay > by.parked)
        throw start_error("more than " + std::to_string(by.parked) +
                          " exports were removed whose trees are served by other ones, or whose disks do not "
                          "answer: restart the program");
    const auto lasts = [](const closing& c) { return c.gone != nullptr || c.now != closing::phase::ended; };
    if (std::cmp_greater_equal(std::ranges::count_if(closing_, lasts), by.closing))
        throw start_error(
            std::to_string(by.closing) +
            " exports that were removed before are still being closed: see what each of them waits for "
            "(verbena admin exports), and reload again when that has ended, or restart the program");
    made->workers.reserve(gone.size() + 1);
    const auto add = [&]() -> closing& {
        closing& c = closing_.emplace_back();
        made->workers.push_back(&c);
        c.shards = &shards;
        c.commons = by.commons;
        c.taken = made->taken;
        return c;
    };
    for (auto& e : gone)
        add().gone = std::move(e);
    if (!stay.empty())
        add().stay = std::move(stay);
    made->taken->with_losses = made->workers.size();
    return made;
}

void export_set::change::apply() noexcept
{
    if (list == nullptr)
        return;
    for (const auto& [backend, all] : refuses)
        if (!all)
            backend->refuse_changes(false);
    opened.clear();
    held.clear();
    of_.table_.publish(list, shards_.size());
    for (std::size_t i = 0; i < messages.size(); ++i)
        shards_.at(i).reactor().post_remote(*messages[i].release());
    {
        const std::lock_guard lock(of_.mutex_);
        of_.served_.swap(served);
        for (closing* const worker : workers)
            worker->now = closing::phase::runs;
        workers.clear();
        of_.changed_.notify_all();
    }
    served.clear(); // whoever closes some of them waits for that
    std::unique_lock lock(taken->mutex);
    const bool in_time = taken->changed.wait_for(
        lock, patience_, [&] { return taken->count == taken->took.size() && taken->with_losses == 0; });
    for (const auto& [backend, all] : refuses)
        if (all)
            backend->refuse_changes(true);
    if (in_time)
        return;
    try {
        for (std::size_t i = 0; i < taken->took.size(); ++i)
            if (!taken->took[i])
                late.push_back("shard " + std::to_string(i) +
                               " does not run its tasks: it serves the exports of before until it does");
        if (taken->with_losses != 0)
            late.emplace_back("not all that clients have of the exports that go is taken yet");
    } catch (const std::bad_alloc&) { // the log of the shards says the same
    }
}

namespace {

// Of all homes, a part at a time, so that others of each shard have their turn.
void drop(runtime& shards, state_home& state, std::uint32_t via, state_table::export_state what,
          state_table::export_losses& lost, const std::function<bool(const files::client_label&)>& whose = {})
{
    for (unsigned home = 0; home < state.homes(); ++home) {
        std::size_t place = 0;
        const auto part = [&](shard&) {
            return state.table(home).drop_export(via, what, place, lost, whose);
        };
        while (shards.call(state.where(home).index(), part)) {
        }
    }
}

// By where it came from last. Who is in this process has no such address.
bool is_kept_out(const client_list& clients, const files::client_label& who, host_addresses& host) noexcept
{
    try {
        const auto address = ip_address::parse(who.address);
        return address && !clients.admits(*address, host);
    } catch (const std::exception&) { // no memory
        return false;
    }
}

// Whether somebody is still at work on something that clients had.
bool is_left(runtime& shards, state_home& state, std::uint32_t via, std::optional<std::uint32_t> space)
{
    for (unsigned home = 0; home < state.homes(); ++home) {
        const std::size_t on = state.where(home).index();
        if (shards.call(on, [&](shard&) { return state.table(home).has_fences_by(via); }))
            return true;
        state_table::file_search at;
        std::optional<bool> found;
        while (space && !(found = shards.call(
                              on, [&](shard&) { return state.table(home).has_files_in(*space, at); }))) {
        }
        if (found && *found)
            return true;
    }
    return false;
}

} // namespace

namespace {

void tell_closed(const std::string& pseudo, const state_table::export_losses& lost) noexcept
{
    try {
        log(log_level::info, "nfs", "an export is closed",
            {{"export", pseudo},
             {"opens", lost.opens},
             {"locks", lost.locks},
             {"delegations", lost.delegations},
             {"layouts", lost.layouts}});
    } catch (const std::bad_alloc&) { // no memory for the line
    }
}

void tell_unwatched(const std::string& pseudo, const char* why) noexcept
{
    try {
        log(log_level::warning, "nfs",
            "an export that was opened for nothing can't be closed, as its disk does not answer: a later "
            "reload or check closes it, once it does",
            {{"export", pseudo}, {"why", why}});
    } catch (const std::bad_alloc&) { // no memory for the line
    }
}

} // namespace

// Throws start_error.
void export_set::begin_keeper(runtime& shards)
{
    const std::lock_guard lock(mutex_);
    if (stops_ || keeper_.joinable())
        return;
    if (lane_ == nullptr) {
        const result<blocking_pool*> lane = shards.add_lane(closing_lane, closing_threads);
        if (!lane)
            throw_start_failure(lane.error(), std::string(closing_lane) + ": " + lane.error().message());
        lane_ = *lane;
    }
    // Handlers of the program that this is a part of run on its own threads.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        keeper_ = std::thread([this] {
            ::pthread_setname_np(::pthread_self(), closing_lane);
            keep();
        });
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    } catch (const std::system_error& e) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw start_error(std::string("the thread that closes exports does not start: ") + e.what() +
                          "; raise the limit of threads (ulimit -u, TasksMax=)");
    }
}

// The thread that closes exports: each has a step of its own in turn, so that none waits for calls or a disk of another.
void export_set::keep() noexcept
{
    using phase = closing::phase;
    std::unique_lock lock(mutex_);
    while (!stops_) {
        // Another thread adds some, or takes those away that have ended, while a step waits for shards.
        for (closing& c : closing_) {
            if (stops_)
                return;
            if (c.now == phase::dropped) {
                c.gone.reset(); // it is served on
                c.now = phase::ended;
            }
            if (c.now != phase::runs)
                continue;
            try {
                if (!c.steps)
                    c.steps = close(c, lock);
                c.steps.step();
            } catch (const std::bad_alloc&) { // later
            }
            if (c.steps && c.steps.has_ended())
                c.now = phase::ended; // as it says itself, but for a fault in it
            if (c.now == phase::ended)
                c.steps = stepped();
        }
        close_unused(lock);
        const auto has_work = [](const closing& c) {
            return c.now == phase::runs || c.now == phase::dropped;
        };
        if (stops_)
            return;
        if (std::ranges::any_of(closing_, has_work))
            changed_.wait_for(lock, look_again);
        else if (std::ranges::count(parked_, 0u, &parked::space) != 0)
            changed_.wait_for(lock, look_at_disks);
        else
            changed_.wait(lock);
    }
}

// Goes on under `lock`, but while it waits for shards. A step ends where calls or a disk are to be waited for.
stepped export_set::close(closing& c, std::unique_lock<std::mutex>& lock)
{
    const auto ends = [&] {
        c.now = closing::phase::ended;
        changed_.notify_all();
    };
    state_home* const state = c.commons != nullptr ? &c.commons->state : nullptr;
    try {
        state_table::export_losses lost;
        lock.unlock();
        host_addresses host;
        // At once, whatever hangs; and again when nobody can have got anything any more.
        const auto take = [&] {
            if (state != nullptr && c.gone != nullptr)
                drop(*c.shards, *state, c.gone->options.id, state_table::export_state::all, lost);
            state_table::export_losses of_others;
            for (const auto& e : c.stay) {
                if (state != nullptr && e.has_layouts)
                    drop(*c.shards, *state, e.id, state_table::export_state::layouts, of_others);
                if (state != nullptr && e.lost == lost_delegations::all)
                    drop(*c.shards, *state, e.id, state_table::export_state::delegations, of_others);
                if (state != nullptr && e.lost == lost_delegations::of_kept_out && !e.clients.everybody())
                    drop(*c.shards, *state, e.id, state_table::export_state::delegations, of_others,
                         [&](const files::client_label& who) { return is_kept_out(e.clients, who, host); });
            }
        };
        take();
        if (c.gone != nullptr) { // nothing is served there, however long it takes to close it
            c.gone->backend->opened.metrics.clear();
            leave_root_alone(*c.gone->backend);
        }
        {
            const std::lock_guard told(c.taken->mutex);
            --c.taken->with_losses;
            c.taken->changed.notify_all();
        }
        lock.lock();
        const auto is_used = [&] {
            return !c.taken->all_took() || (c.gone != nullptr && !c.gone->options.users->none());
        };
        while (is_used())
            co_await std::suspend_always();
        c.waits_for = waits_for_state;
        lock.unlock();
        take();
        lock.lock();
        if (c.gone == nullptr) {
            ends();
            co_return;
        }
        // Nobody asks for its room any more: a disk that hangs is waited for.
        lock.unlock();
        c.shards->call(0, [&](shard&) { c.gone->backend->room.end(); });
        lock.lock();
        while (c.gone->backend->room.is_tended()) {
            c.waits_for = waits_for_disk;
            co_await std::suspend_always();
        }
        c.waits_for = waits_for_state;
        // Of a tree that another export is of, too, others have files open and locked: by this back end are locks at most.
        const auto is_served = [this](std::uint32_t space) {
            return std::ranges::any_of(served_,
                                       [space](const auto& other) { return other->options.space == space; });
        };
        for (;;) {
            const export_options& e = c.gone->options;
            const bool is_shared = is_served(e.space);
            lock.unlock();
            const bool waits = state != nullptr && is_left(*c.shards, *state, e.id,
                                                           is_shared ? std::nullopt : std::optional(e.space));
            lock.lock();
            if (!waits)
                break;
            co_await std::suspend_always();
        }
        // The locks of clients on a tree may be held by the back end of any of its exports, which they call until they go: also where
        // that export went earlier. They go with the last export's files, so the last one waits for them.
        const auto has_locks = [](const export_backend& b) {
            return b.opened.has_locks && b.opened.has_locks();
        };
        const auto has_locks_of_tree = [&] {
            const std::uint32_t space = c.gone->options.space;
            return has_locks(*c.gone->backend) || std::ranges::any_of(parked_, [&](const parked& p) {
                       return p.space == space && space != 0 && has_locks(*p.backend);
                   });
        };
        while (!is_served(c.gone->options.space) && has_locks_of_tree())
            co_await std::suspend_always();
        // Whoever has asked what is served may be looking at it still: a command, a scrape, what a suspension left to be done.
        const auto is_looked_at = [](const auto& e) {
            return e.use_count() > 1 || e->backend.use_count() > 1;
        };
        c.waits_for = waits_for_looks;
        while (is_looked_at(c.gone))
            co_await std::suspend_always();
        c.waits_for = waits_for_disk;
        // What the others did with it comes before what follows: each count is changed once more.
        std::shared_ptr<served_export>(c.gone).reset();
        std::shared_ptr<export_backend>(c.gone->backend).reset();
        // All that needs memory is there before one goes.
        std::vector<leaving_back_end> all;
        const bool is_parked = has_locks(*c.gone->backend);
        if (!is_parked)
            all.emplace_back(c.gone->backend);
        // Those that earlier reloads had to leave.
        for (const parked& p : parked_)
            if (p.space != 0 && !has_locks(*p.backend))
                all.emplace_back(p.backend);
        if (is_parked)
            parked_.push_back({c.gone->backend, c.gone->config.pseudo, c.gone->options.space});
        std::erase_if(parked_, [&all](const parked& p) {
            return std::ranges::find(all, p.backend, &leaving_back_end::of) != all.end();
        });
        lock.unlock();
        c.gone->backend.reset();
        for (const leaving_back_end& each : all)
            for (std::size_t shard = 0; shard < c.shards->size(); ++shard)
                c.shards->call(shard, [&](verbena::shard&) { each.of->opened.files->leave_shard(); });
        lock.lock();
        for (;;) {
            // All that can end is begun before one is waited for.
            std::size_t open = 0;
            for (leaving_back_end& each : all)
                open += !each.has_ended(*lane_);
            // Those of earlier reloads keep this one from nothing.
            if (c.gone != nullptr && (is_parked || all.front().has_ended(*lane_))) {
                const std::shared_ptr<const served_export> closed =
                    std::exchange(c.gone, nullptr); // from here on it may come back
                lock.unlock();
                tell_closed(closed->config.pseudo, lost);
                lock.lock();
            }
            if (open == 0)
                break;
            co_await std::suspend_always();
        }
    } catch (const std::exception& e) {
        if (!lock.owns_lock())
            lock.lock();
        try {
            c.failed = e.what();
            if (c.gone != nullptr)
                log(log_level::error, "nfs",
                    "an export that a reload removed can't be closed: its folder stays in use until this "
                    "program ends; restart it to unmount that, or to serve it again",
                    {{"export", c.gone->config.pseudo}, {"why", e.what()}});
            else
                log(log_level::error, "nfs",
                    "not all is taken that clients had of exports by the rules before a reload: reload once "
                    "more",
                    {{"why", e.what()}});
        } catch (const std::exception&) { // no memory for the line
        }
    }
    ends();
}

// Closes what nobody uses, or keeps what a disk still has something of: then whoever gave it up does not wait for that disk.
void export_set::give_up(std::list<parked>& opened, std::chrono::milliseconds patience) noexcept
{
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + patience;
    for (auto at = opened.begin(); at != opened.end();) {
        const auto here = at++;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
        if (here->backend == nullptr || close_within(*here->backend, std::max(left, left.zero())))
            continue;
        leave_root_alone(*here->backend); // before anything that may fail
        try {
            begin_keeper(here->backend->shards);
            log(log_level::warning, "nfs",
                "an export that was opened for nothing can't be closed, as its disk does not answer: it is "
                "closed when it does",
                {{"export", here->pseudo}});
        } catch (const start_error& e) {
            tell_unwatched(here->pseudo, e.what());
        } catch (const std::bad_alloc&) { // no memory for the line
        }
        const std::lock_guard lock(mutex_);
        parked_.splice(parked_.end(), opened, here);
        changed_.notify_all();
    }
    opened.clear();
}

// Back ends that were opened for nothing, and on whose lanes nothing runs any more.
void export_set::close_unused(std::unique_lock<std::mutex>& lock) noexcept
{
    std::list<parked> ended;
    for (auto at = parked_.begin(); at != parked_.end();) {
        const auto here = at++;
        if (here->space == 0 && close_within(*here->backend, std::chrono::milliseconds(0)))
            ended.splice(ended.end(), parked_, here);
    }
    if (ended.empty())
        return;
    lock.unlock();
    for (parked& each : ended)
        try {
            log(log_level::info, "nfs",
                "an export that was opened for nothing is closed, as its disk answers",
                {{"export", each.pseudo}});
            if (lane_ == nullptr)
                continue;
            auto job = std::make_unique<end_of_back_end>(std::move(each.backend));
            begin_end(*lane_, job);
        } catch (const std::bad_alloc&) { // it ends here
        }
    ended.clear();
    lock.lock();
}

void export_set::forget_closed() noexcept
{
    std::unique_lock lock(mutex_);
    close_unused(lock);
    for (auto c = closing_.begin(); c != closing_.end();) {
        const auto here = c++;
        // What could not be closed stays until the end.
        if (here->now != closing::phase::ended || here->gone != nullptr)
            continue;
        closing_.erase(here);
    }
    (void)table_.drop_old();
}

void export_set::stop() noexcept
{
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
        changed_.notify_all();
    }
    if (keeper_.joinable())
        keeper_.join();
    if (lane_ != nullptr)
        lane_->finish();
    lane_ = nullptr;
}

} // namespace verbena::nfs
