// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/dispatcher.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/in_context.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/kept_results.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace verbena::rpc {
namespace {

constexpr std::array<std::string_view, service_dispatcher::transport_count> transports = {
    "tcp", "iwarp", "rdma", "loop", "other"};

// For each call. A comparison with text whose length is known here is a few instructions; a search calls memcmp.
template<std::size_t... Index>
constexpr std::size_t index_among(std::string_view transport, std::index_sequence<Index...>) noexcept
{
    std::size_t found = sizeof...(Index); // the last one, which stands for all others
    (void)((transport == transports[Index] && (found = Index, true)) || ...);
    return found;
}

constexpr std::size_t index_of(std::string_view transport) noexcept
{
    return index_among(transport, std::make_index_sequence<transports.size() - 1>());
}

void answer(call& c, const reply_header& header) noexcept
{
    c.results().truncate(0);
    c.detach();
    encode(c.results(), header);
}

reply_header header_of(outcome o, std::uint32_t xid) noexcept
{
    switch (o) {
    case outcome::proc_unavail: return reply_header::accepted_with(xid, accept_status::procedure_unavailable);
    case outcome::garbage_args: return reply_header::accepted_with(xid, accept_status::garbage_arguments);
    case outcome::auth_too_weak: return reply_header::denied(xid, auth_status::too_weak);
    case outcome::success:
    case outcome::system_error:
    case outcome::drop: break;
    }
    return reply_header::accepted_with(xid, accept_status::system_error);
}

std::string_view text_of(outcome o) noexcept
{
    switch (o) {
    case outcome::success: return "ok";
    case outcome::proc_unavail: return "PROC_UNAVAIL";
    case outcome::garbage_args: return "GARBAGE_ARGS";
    case outcome::auth_too_weak: return "AUTH_TOOWEAK";
    case outcome::system_error: return "SYSTEM_ERR";
    case outcome::drop: return "dropped";
    }
    return {};
}

/// True if a transport can frame what the procedure left.
bool complete(const call& c, const xdr::encoder& results) noexcept
{
    const auto items = results.payloads();
    const attachments& attached = c.attached();
    if (!results.ok() || items.size() != attached.size())
        return false;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (items[i].length != attached[i].size())
            return false;
    }
    return true;
}

/// True if the data of a reply, too, are short enough to be kept, and in memory.
bool may_be_kept(call& c, std::size_t most) noexcept
{
    bool in_memory = true;
    for (std::size_t i = 0; i < c.attached().size(); ++i)
        in_memory = in_memory && c.attached()[i].file.size == 0;
    return in_memory && c.results().position() <= most;
}

// RPCSEC_GSS, as sec=krb5 has it, or one that nobody knows.
void tell_flavor(const call& c) noexcept
{
    std::array<char, 24> said{"flavor "};
    const auto end = std::to_chars(said.data() + 7, said.data() + said.size(),
                                   std::uint32_t(c.header().credential.flavor));
    tell_refusal(refused::connection_security,
                 {.peer = c.from().address,
                  .object = c.from().transport,
                  .said = std::string_view(said.data(), std::size_t(end.ptr - said.data()))});
}

} // namespace

struct service_dispatcher::procedure_table {
    std::array<procedure_stats, max_procedures + 1> procedures; // the last: all unknown ones
};

struct service_dispatcher::version_entry {
    version_entry(rpc::program& p, std::uint32_t v) noexcept : program(p), number(p.number()), version(v) {}
    ~version_entry()
    {
        for (auto& table : tables)
            delete table.load(std::memory_order_relaxed);
    }
    rpc::program& program;
    const std::uint32_t number;
    const std::uint32_t version;
    // Made by the shard at the first call over a transport; a scrape may look at any time.
    std::array<std::atomic<procedure_table*>, transport_count> tables{};
};

service_dispatcher::service_dispatcher(reactor& shard, duplicate_request_cache* duplicates)
    : shard_(shard), duplicates_(duplicates)
{
}
service_dispatcher::~service_dispatcher() = default;

bool service_dispatcher::admits(const peer& from)
{
    return std::ranges::any_of(programs_, [&](program* p) { return p->admits(from); });
}

void service_dispatcher::add(program& p)
{
    programs_.push_back(&p);
    shard_.requests().expect(p.name());
    shard_.requests().expect("rpc"); // of calls whose program is not known yet, and of callbacks
    for (std::uint32_t version = p.low_version(); version <= p.high_version(); ++version)
        versions_.push_back(std::make_unique<version_entry>(p, version));
}

// The entry, or nullptr with the range of versions that the program has (low > high: none).
service_dispatcher::version_entry* service_dispatcher::find(std::uint32_t program, std::uint32_t version,
                                                            std::uint32_t& low, std::uint32_t& high) noexcept
{
    low = UINT32_MAX;
    high = 0;
    for (const auto& entry : versions_) {
        if (entry->number != program)
            continue;
        if (entry->version == version)
            return entry.get();
        low = std::min(low, entry->version);
        high = std::max(high, entry->version);
    }
    return nullptr;
}

procedure_stats& service_dispatcher::stats_of(version_entry& entry, std::string_view transport,
                                              std::uint32_t procedure)
{
    auto& slot = entry.tables[index_of(transport)];
    procedure_table* table = slot.load(std::memory_order_relaxed);
    if (table == nullptr) {
        table = new procedure_table;
        slot.store(table, std::memory_order_release);
    }
    return table->procedures[std::min(procedure, max_procedures)];
}

task<bool> service_dispatcher::dispatch(call& c)
{
    // The turn in which the call became whole: a clock read less, and what it waited for others counts.
    const time_point begun = shard_.now();
    const call_verdict verdict = c.decode_header();
    const call_header& header = c.header();
    switch (verdict) {
    case call_verdict::good: break;
    case call_verdict::unanswerable: refusals_.unanswerable.add(); co_return false;
    case call_verdict::rpc_mismatch:
        refusals_.rpc_mismatch.add();
        answer(c, reply_header::rpc_mismatch(header.xid));
        co_return true;
    case call_verdict::bad_credential:
    case call_verdict::bad_verifier:
        refusals_.auth_error.add();
        answer(c, reply_header::denied(header.xid, verdict == call_verdict::bad_credential
                                                       ? auth_status::bad_credential
                                                       : auth_status::bad_verifier));
        co_return true;
    }
    if (const auth_status status = c.authenticate(); status != auth_status::ok) {
        refusals_.auth_error.add();
        if (status == auth_status::rejected_credential)
            tell_flavor(c);
        answer(c, reply_header::denied(header.xid, status));
        co_return true;
    }
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    version_entry* const entry = find(header.program, header.version, low, high);
    if (entry == nullptr) {
        if (low > high) {
            refusals_.program_unavailable.add();
            answer(c, reply_header::accepted_with(header.xid, accept_status::program_unavailable));
        } else {
            refusals_.program_mismatch.add();
            answer(c, reply_header::program_mismatch(header.xid, low, high));
        }
        co_return true;
    }

    encode(c.results(), reply_header::accepted_with(header.xid, accept_status::success));
    c.set_program(&entry->program);
    procedure_stats& stats = stats_of(*entry, c.from().transport, header.procedure);
    outcome how = outcome::system_error;
    try {
        const repeat_rule rule = duplicates_ != nullptr ? entry->program.repeats(c) : repeat_rule::runs_again;
        // Before the program sees the call: what needs no coroutine runs when its task is made.
        const task_context& context = co_await current_context();
        c.set_caller_gone(context.stop);
        c.note(nullptr); // what the program noted of the call before, where a transport uses a call again
        const bool alone = c.server_stop().stop_possible() && entry->program.goes_on_alone(c);
        task<outcome> serving;
        if (rule == repeat_rule::is_answered)
            serving = serve_once(entry->program, c);
        else if (rule == repeat_rule::runs_in_turn)
            serving = serve_in_turn(entry->program, c);
        else
            serving = entry->program.serve(c);
        if (alone) {
            task_context of_the_server = context;
            of_the_server.stop = c.server_stop();
            verbena::detail::in_context<outcome> ended(serving, of_the_server);
            how = co_await ended;
        } else {
            how = co_await serving;
        }
    } catch (...) {
        // A fault of the program's, which costs one call.
        stats.exceptions.add();
        const std::string_view name = entry->program.procedure_name(header.version, header.procedure);
        log_limited(exceptions_logged_, log_level::error, "rpc", "a procedure threw an exception",
                    {{"program", entry->program.name()},
                     {"version", header.version},
                     {"number", header.procedure},
                     {"procedure", name.empty() ? "unknown" : name},
                     {"client", c.from().name},
                     {"call", trace_name(c.trace())},
                     {"exception", what_of(std::current_exception())}});
    }
    c.set_detail(nullptr); // it lay in the program's frame
    if (how == outcome::success && !complete(c, c.results()))
        how = outcome::system_error;
    if (how == outcome::proc_unavail)
        refusals_.procedure_unavailable.add();
    if (how != outcome::success && how != outcome::drop)
        answer(c, header_of(how, header.xid));
    c.served([how] { return text_of(how); });

    stats.calls.add();
    stats.bytes_in.add(c.args().position());
    if (how == outcome::drop) {
        stats.dropped.add();
        co_return false;
    }
    if (how != outcome::success)
        stats.errors.add();
    stats.bytes_out.add(c.results().position());
    const std::optional<time_point> ended = c.ended();
    const auto took =
        std::chrono::duration_cast<std::chrono::nanoseconds>((ended ? *ended : shard_.clock().now()) - begun);
    stats.latency.observe(static_cast<std::uint64_t>(took.count()));
    if (log_enabled(log_level::trace)) {
        const auto name = entry->program.procedure_name(header.version, header.procedure);
        log(log_level::trace, "rpc", "call served",
            {{"call", trace_name(c.trace())},
             {"client", c.from().name},
             {"transport", c.from().transport},
             {"xid", header.xid},
             {"program", entry->program.name()},
             {"version", header.version},
             {"procedure", name.empty() ? "unknown" : name},
             {"rpc_success", how == outcome::success},
             {"microseconds", took.count() / 1000}});
    }
    co_return true;
}

task<outcome> service_dispatcher::serve_once(program& p, call& c)
{
    duplicate_request_cache::visit visit(*duplicates_, shard_, request_key::of(c));
    switch (co_await visit.begin()) {
    case duplicate_request_cache::state::fresh: break;
    case duplicate_request_cache::state::uncached: co_return co_await p.serve(c);
    case duplicate_request_cache::state::dropped: co_return outcome::drop;
    case duplicate_request_cache::state::answered: {
        c.results().truncate(0);
        if (!co_await c.reserve_results(visit.reply().size()))
            co_return outcome::drop; // rather than an error for what was done: the peer asks again
        const bool whole = co_await answer_as_kept(c, visit.reply(), visit.items());
        co_return whole ? outcome::success : outcome::drop;
    }
    }
    c.set_most_kept(duplicates_->max_reply());
    outcome how = outcome::system_error;
    std::exception_ptr thrown;
    try {
        how = co_await p.serve(c);
    } catch (...) {
        thrown = std::current_exception();
    }
    if (how == outcome::success && !complete(c, c.results()))
        how = outcome::system_error;
    // What was refused did nothing, so a repeat may as well be refused again.
    const bool fits = c.results().position() <= duplicates_->max_reply();
    if (how == outcome::success && !c.refused() && c.results().payloads().empty() &&
        (fits || !c.keeps_failure())) {
        visit.remember(c.results().bytes());
    } else if (how == outcome::success && !c.refused() && may_be_kept(c, duplicates_->max_reply())) {
        const kept_results kept(c, 0);
        visit.remember(kept.bytes(), kept.items());
    } else if (how == outcome::success && !c.refused() && c.keeps_failure()) {
        // Too large to keep. A repeat must not run what ran: it hears that there is no answer.
        std::array<std::byte, max_success_header_size> bytes{};
        xdr::encoder none{std::span(bytes)};
        encode(none, header_of(outcome::system_error, c.header().xid));
        visit.remember(none.bytes());
    } else if (how != outcome::success && how != outcome::drop && c.keeps_failure()) {
        answer(c, header_of(how, c.header().xid));
        visit.remember(c.results().bytes());
    }
    if (thrown)
        std::rethrow_exception(thrown);
    co_return how;
}

task<outcome> service_dispatcher::serve_in_turn(program& p, call& c)
{
    duplicate_request_cache::visit visit(*duplicates_, shard_, request_key::of(c, request_key::first_bytes),
                                         duplicate_request_cache::repeat::in_turn);
    const auto state = co_await visit.begin();
    if (state == duplicate_request_cache::state::dropped)
        co_return outcome::drop;
    co_return co_await p.serve(c); // the end of the visit lets the next one run
}

void service_dispatcher::for_each(
    const std::function<void(const procedure_label&, const procedure_stats&)>& show) const
{
    for (const auto& entry : versions_) {
        for (std::size_t t = 0; t < transport_count; ++t) {
            const procedure_table* table = entry->tables[t].load(std::memory_order_acquire);
            if (table == nullptr)
                continue;
            for (std::uint32_t i = 0; i <= max_procedures; ++i) {
                const procedure_stats& stats = table->procedures[i];
                if (stats.calls.value() == 0)
                    continue;
                std::string_view name = i < max_procedures ? entry->program.procedure_name(entry->version, i)
                                                           : std::string_view();
                if (name.empty())
                    name = "unknown";
                show({entry->program.name(), entry->version, name, transports[t]}, stats);
            }
        }
    }
}

} // namespace verbena::rpc
