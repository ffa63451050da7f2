// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/covered.hpp>

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace verbena::nfs {

namespace {

bool is_less(const storage::handle& one, const storage::handle& other) noexcept
{
    return std::ranges::lexicographical_compare(one.bytes(), other.bytes());
}

bool has(const std::vector<storage::handle>& sorted, const storage::handle& file) noexcept
{
    return std::ranges::binary_search(sorted, file, is_less);
}

// What is not there is covered by nobody. Of another error nothing is known.
bool leads_nowhere(const error& why) noexcept
{
    return why == storage::errc::crosses_mount || why.errno_value() == ENOENT || why.errno_value() == ENOTDIR;
}

} // namespace

/// Of one outer export.
struct covered_directories::known {
    struct place {
        storage::handle directory;          // that is covered; empty: none is
        std::uint32_t inner = 0;            // the id of the export
        std::uint64_t number = 0;           // its fileid, or that of the mount's place in it
        std::vector<storage::handle> above; // what leads there, from the root on
        friend bool operator==(const place&, const place&) = default;
    };
    struct inner_export {
        std::string path;
        std::uint32_t exported = 0;
        place last = {}; // known of it
        bool is_asked = false;
        bool is_same(const inner_export& other) const
        {
            return path == other.path && exported == other.exported;
        }
    };
    known(const export_table& exports, const export_options& o) : files(o.backend)
    {
        for (const export_table::nest& each : exports.nests_of(o))
            inner.push_back({std::string(each.path), each.inner->id});
    }
    void set(inner_export& of, place made);
    // Nothing is new, and nothing known is no more true.
    bool goes_on_as(const known& now) const
    {
        return files == now.files && std::ranges::equal(inner, now.inner, [](const auto& a, const auto& b) {
                   return a.is_same(b);
               });
    }
    void learn_from(const known& before)
    {
        if (files != before.files)
            return;
        for (inner_export& each : inner) {
            const auto same = [&each](const inner_export& other) { return each.is_same(other); };
            const auto there = std::ranges::find_if(before.inner, same);
            if (there != before.inner.end() && !there->last.directory.empty())
                set(each, there->last);
        }
    }

    storage::file_backend* const files; // of the outer export
    std::vector<inner_export> inner;
    std::vector<place> places;          // sorted by handle
    std::vector<storage::handle> above; // all of theirs, sorted
    std::optional<time_point> looked_at;
    std::shared_ptr<round> running;
    bool is_settling = false;
};

/// One time that all inner exports are looked up, but for those that an earlier round has asked for and not heard of.
struct covered_directories::round {
    static constexpr unsigned most_at_once = 2; // each that hangs holds a thread of the back end's
    round(const clock_source& c, const export_table& exports, const export_options& of) noexcept
        : lists(exports.begin_use()), exported(of), clock(c), waits_until(c.now() + patience)
    {
    }
    void one_ends(known& of) noexcept;

    const export_table::use lists; // what stands behind it stays
    const export_ref exported;     // so does its back end
    const clock_source& clock;
    std::vector<std::size_t> due;
    std::size_t next = 0;
    unsigned running = 0;
    time_point waits_until;
    event over;
};

// All or nothing: where there is no memory, what was known before counts.
void covered_directories::known::set(inner_export& of, place made)
{
    std::vector<place> all;
    std::vector<storage::handle> leads;
    for (const inner_export& each : inner) {
        const place& known_of_it = &each == &of ? made : each.last;
        if (known_of_it.directory.empty())
            continue;
        all.push_back(known_of_it);
        leads.insert(leads.end(), known_of_it.above.begin(), known_of_it.above.end());
    }
    std::ranges::sort(all, is_less, &place::directory);
    std::ranges::sort(leads, is_less);
    const auto repeats = std::ranges::unique(leads);
    leads.erase(repeats.begin(), repeats.end());
    places = std::move(all);
    above = std::move(leads);
    of.last = std::move(made);
}

void covered_directories::round::one_ends(known& of) noexcept
{
    if (--running > 0)
        return;
    if (of.running.get() == this) {
        of.looked_at = clock.now();
        of.running = nullptr;
    }
    over.set();
}

covered_directories::covered_directories(const export_table& exports, const shard* here)
    : exports_(exports), aside_(here != nullptr ? &here->tasks() : nullptr)
{
    if (here == nullptr || !here->reactor().is_here())
        return;
    exports_.tell(*this);
    for (const export_options& outer : exports_.all()) {
        if (exports_.has_nested(outer)) {
            const std::shared_ptr<known> k = known_of(outer);
            begin(k, outer, here->reactor().clock());
            if (!k->looked_at) {
                k->is_settling = true;
                aside_->spawn(&covered_directories::settle, k);
            }
        }
    }
}

covered_directories::~covered_directories() = default;

// Nobody waits for what is new: whoever has a handle of it had it before it was covered.
void covered_directories::exports_changed() noexcept
{
    std::erase_if(known_, [this](const auto& each) { return exports_.by_id(each.first) == nullptr; });
    for (const export_options& outer : exports_.all()) {
        if (!exports_.has_nested(outer)) {
            known_.erase(outer.id);
            continue;
        }
        try {
            auto made = std::make_shared<known>(exports_, outer);
            auto& k = known_[outer.id];
            if (k && k->goes_on_as(*made))
                continue;
            if (k)
                made->learn_from(*k);
            k = made;
            begin(k, outer, reactor::current()->clock());
        } catch (const std::bad_alloc&) { // the next look
            known_.erase(outer.id);
        }
    }
}

std::shared_ptr<covered_directories::known> covered_directories::known_of(const export_options& outer)
{
    auto& k = known_[outer.id];
    if (!k)
        k = std::make_shared<known>(exports_, outer);
    return k;
}

const covered_directories::known* covered_directories::find(const export_options& outer) const noexcept
{
    if (known_.empty())
        return nullptr;
    const auto found = known_.find(outer.id);
    return found != known_.end() ? found->second.get() : nullptr;
}

// A round that has lasted too long is left to itself: what it still asks for is asked by no other one.
void covered_directories::begin(const std::shared_ptr<known>& k, const export_options& outer,
                                const clock_source& clock)
{
    const auto made = std::make_shared<round>(clock, exports_, outer);
    for (std::size_t i = 0; i < k->inner.size(); ++i) {
        if (!k->inner[i].is_asked)
            made->due.push_back(i);
    }
    const std::size_t hanging = k->inner.size() - made->due.size();
    const std::size_t runners =
        std::min(made->due.size(), round::most_at_once - std::min<std::size_t>(hanging, round::most_at_once));
    k->running = made;
    made->running = 1; // for this
    for (std::size_t left = aside_ != nullptr ? runners : 0; left > 0; --left) {
        ++made->running;
        aside_->spawn(&covered_directories::look_up_due, k, made);
    }
    if (aside_ != nullptr || runners == 0) // with none left what was known counts
        made->one_ends(*k);
}

task<void> covered_directories::look(const export_options& outer)
{
    if (!exports_.has_nested(outer))
        co_return;
    const task_context& context = co_await current_context();
    const time_point now = context.shard->clock().now();
    const std::shared_ptr<known> k = known_of(outer);
    if (k->looked_at && now - *k->looked_at < look_again)
        co_return;
    if (!k->running || now >= k->running->waits_until) {
        begin(k, outer, context.shard->clock());
        if (aside_ == nullptr && k->running) {
            task<void> here = look_up_due(k, k->running);
            co_await here;
            co_return;
        }
    }
    const bool is_good = k->looked_at && now - *k->looked_at < too_old;
    const std::shared_ptr<round> r = k->running;
    if (is_good || !r || now >= r->waits_until)
        co_return;
    const duration left = r->waits_until - now;
    task<result<bool>> waiting = until_over(r);
    (void)co_await with_timeout(left, std::move(waiting));
}

task<result<bool>> covered_directories::until_over(std::shared_ptr<round> r)
{
    const bool ended = co_await r->over.wait("a look at what exports cover");
    co_return ended;
}

task<void> covered_directories::settle(std::shared_ptr<known> k)
{
    struct settling {
        explicit settling(known& k) noexcept : of(k) {}
        settling(const settling&) = delete;
        ~settling() { of.is_settling = false; }
        known& of;
    } ends(*k);
    if (const std::shared_ptr<round> first = k->running) {
        task<result<bool>> waiting = until_over(first);
        (void)co_await with_timeout(patience, std::move(waiting));
    }
}

namespace {

struct asking {
    explicit asking(bool& m) noexcept : mark(m) { mark = true; }
    asking(const asking&) = delete;
    ~asking() { mark = false; }
    bool& mark;
};

} // namespace

// With the rights of the process, since it is for all callers.
task<void> covered_directories::look_up_due(std::shared_ptr<known> k, std::shared_ptr<round> r)
{
    storage::file_backend& files = *k->files;
    storage::request request;
    request.who = storage::credential(0, 0);
    struct ending {
        ending(known& k, round& r) noexcept : of(k), what(r) {}
        ending(const ending&) = delete;
        ~ending() { what.one_ends(of); }
        known& of;
        round& what;
    } ends(*k, *r);
    // One that has lasted too long leaves the rest to the next one.
    while (r->next < r->due.size() && k->running == r) {
        known::inner_export& each = k->inner[r->due[r->next++]];
        if (each.is_asked)
            continue;
        const asking mark(each.is_asked);
        known::place made;
        made.inner = each.exported;
        made.directory = files.root();
        bool is_known = true;
        std::string_view rest = each.path;
        for (auto name = next_component(rest); !name.empty(); name = next_component(rest)) {
            made.above.push_back(made.directory);
            const auto next = co_await files.lookup(request, made.directory, name);
            if (!next) {
                is_known = leads_nowhere(next.error());
                made.directory = storage::handle();
                break;
            }
            made.directory = next->found.handle;
        }
        // A file covers nothing. Whoever may write there can link another one's to that name, which is not stale for it.
        if (!made.directory.empty()) {
            const auto attrs = co_await files.getattr(request, made.directory);
            is_known = attrs.has_value();
            if (attrs && attrs->type != storage::file_type::directory)
                made.directory = storage::handle();
            else if (attrs)
                made.number = attrs->covered_fileid != 0 ? attrs->covered_fileid : attrs->fileid;
        }
        if (is_known && made != each.last)
            k->set(each, std::move(made));
    }
}

bool covered_directories::is_settling(const export_options& outer) const noexcept
{
    const known* const k = find(outer);
    return k != nullptr && k->is_settling;
}

const export_options* covered_directories::at(const export_options& outer,
                                              const storage::handle& file) const noexcept
{
    const known* const k = find(outer);
    if (k == nullptr)
        return nullptr;
    const auto found = std::ranges::lower_bound(k->places, file, is_less, &known::place::directory);
    return found != k->places.end() && found->directory == file ? exports_.by_id(found->inner) : nullptr;
}

std::uint64_t covered_directories::number_of(const export_options& inner) const noexcept
{
    const export_table::nest* const nest = exports_.nest_around(inner);
    const known* const k = nest != nullptr ? find(*nest->outer) : nullptr;
    if (k == nullptr)
        return 0;
    const auto found = std::ranges::find(k->inner, inner.id, &known::inner_export::exported);
    return found != k->inner.end() ? found->last.number : 0;
}

bool covered_directories::is_above(const export_options& outer,
                                   const storage::handle& directory) const noexcept
{
    const known* const k = find(outer);
    return k != nullptr && has(k->above, directory);
}

bool covered_directories::must_stay(const export_options& outer,
                                    const storage::handle& directory) const noexcept
{
    return at(outer, directory) != nullptr || is_above(outer, directory);
}

} // namespace verbena::nfs
