// SPDX-License-Identifier: Apache-2.0
// A module of your own: the RPC program kv keeps values by key, in memory, for whoever can reach its listeners.
//
//   verbenad --module build/examples/kv/kv.so kv --max-keys 1000
//
// No line of it knows a transport. What makes large values travel well is that they are payload items: args().payload() and
// pull() on the way in, note_payload() and attach() on the way out.
#include "protocol.hpp"

#include <verbena/core/loadable.hpp>
#include <verbena/protocols/rpc/module.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace verbena;

namespace {

struct limits {
    std::uint64_t keys = 0;
    std::uint64_t bytes = 0; // of keys and values
};

// All keys, for all shards. One lock is enough, and makes the limits exact: it is held to find a place in the map and to swap
// a pointer there, while values are copied and freed outside of it. A std::map never moves all that it has at once, as a growing
// hash table would while the other shards wait.
class store {
public:
    using value = std::shared_ptr<const std::vector<std::byte>>;

    explicit store(const limits& most) : most_(most) {}

    // nullptr if there is none. What it returns stays as it is, whatever becomes of the key.
    value find(std::string_view key) const
    {
        const std::lock_guard lock(mutex_);
        const auto at = values_.find(key);
        return at == values_.end() ? nullptr : at->second;
    }
    bool has_room(std::string_view key, std::uint64_t size) const
    {
        const std::lock_guard lock(mutex_);
        return fits(key, values_.find(key), size);
    }
    // False if there is no room.
    bool put(std::string key, value v)
    {
        const std::lock_guard lock(mutex_);
        const auto at = values_.find(key);
        if (!fits(key, at, v->size()))
            return false;
        if (at == values_.end()) {
            used_.bytes += key.size() + v->size();
            ++used_.keys;
            values_.emplace(std::move(key), std::move(v));
        } else {
            used_.bytes += v->size() - at->second->size();
            at->second.swap(v); // the caller's argument: freed when the lock is gone
        }
        return true;
    }
    bool erase(std::string_view key)
    {
        decltype(values_)::node_type gone; // freed when the lock is gone
        const std::lock_guard lock(mutex_);
        const auto at = values_.find(key);
        if (at == values_.end())
            return false;
        used_.bytes -= key.size() + at->second->size();
        --used_.keys;
        gone = values_.extract(at);
        return true;
    }
    const limits& most() const noexcept { return most_; }
    limits used() const
    {
        const std::lock_guard lock(mutex_);
        return used_;
    }

private:
    using map = std::map<std::string, value, std::less<>>;
    bool fits(std::string_view key, map::const_iterator at, std::uint64_t size) const
    {
        const bool is_new = at == values_.end();
        const std::uint64_t before = is_new ? 0 : key.size() + at->second->size();
        return used_.bytes - before + key.size() + size <= most_.bytes &&
               (!is_new || used_.keys < most_.keys);
    }

    const limits most_;
    mutable std::mutex mutex_;
    map values_;
    limits used_;
};

// One for each shard, on a store for all of them.
class program final : public rpc::program {
public:
    explicit program(store& values) : values_(values) {}

    std::uint32_t number() const noexcept override { return kv::program_number; }
    std::uint32_t low_version() const noexcept override { return kv::version; }
    std::uint32_t high_version() const noexcept override { return kv::version; }
    std::string_view name() const noexcept override { return "kv"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t number) const noexcept override
    {
        constexpr std::array<std::string_view, 5> names = {"NULL", "GET", "PUT", "DELETE", "STAT"};
        return number < names.size() ? names[number] : "";
    }
    // A repeat of an old PUT would undo what another client put since.
    bool non_idempotent(std::uint32_t, std::uint32_t number) const noexcept override
    {
        return kv::procedure(number) == kv::procedure::put || kv::procedure(number) == kv::procedure::del;
    }
    // Counters are each shard's own; the registry adds up those of all shards.
    metric_registrations expose(metric_registry& registry) const override
    {
        metric_registrations made;
        made.push_back(registry.add(
            {"kv_gets_total", "GET calls, by what they found.", metric_type::counter, "calls", {"result"}, 2},
            [this](metric_sink& out) {
                out.value({"hit"}, value_of(hits_));
                out.value({"miss"}, value_of(misses_));
            }));
        return made;
    }

    task<rpc::outcome> serve(rpc::call& c) override
    {
        switch (kv::procedure(c.header().procedure)) {
        case kv::procedure::null: return answer(rpc::outcome::success);
        case kv::procedure::get: return get(c);
        case kv::procedure::put: return put(c);
        case kv::procedure::del: return del(c);
        case kv::procedure::stat: return stat(c);
        }
        return answer(rpc::outcome::proc_unavail);
    }

private:
    static task<rpc::outcome> answer(rpc::outcome what) { co_return what; }

    // A call that changes nothing need not be remembered for repeats.
    static rpc::outcome reply(rpc::call& c, kv::status s)
    {
        c.results().u32(std::uint32_t(s));
        if (s != kv::status::ok)
            c.refuse();
        return rpc::outcome::success;
    }

    task<rpc::outcome> get(rpc::call& c)
    {
        const std::string_view key = c.args().string(kv::max_key);
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        const store::value found = values_.find(key);
        (found ? hits_ : misses_).add();
        if (!found)
            co_return reply(c, kv::status::not_found);
        // Copied into memory of the transport: that is registered with the device, and the lease keeps it until it is sent.
        const std::size_t size = found->size();
        c.expect_results(size);
        lease memory =
            co_await c.buffers().acquire(std::max<std::size_t>(size, 1), buffer_pool::call_patience);
        if (!memory)
            co_return reply(c, kv::status::busy);
        std::copy(found->begin(), found->end(), memory.data());
        const std::span<const std::byte> bytes = memory.bytes().first(size);
        c.results().u32(std::uint32_t(kv::status::ok));
        c.results().note_payload(std::uint32_t(size));
        c.attach(rpc::payload(std::move(memory), bytes));
        co_return rpc::outcome::success;
    }

    task<rpc::outcome> put(rpc::call& c)
    {
        std::string key(c.args().string(kv::max_key));
        const xdr::payload_ref data = c.args().payload(kv::max_value);
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        // Of a value in a Read chunk nothing has come yet; if there is no room, it need not come at all.
        if (!values_.has_room(key, data.length))
            co_return reply(c, kv::status::no_space);
        auto pulled = co_await c.pull(data);
        if (!pulled && pulled.error() == std::errc::not_enough_memory)
            co_return reply(c, kv::status::busy);
        if (!pulled)
            co_return rpc::outcome::drop; // the connection is ending
        auto bytes = std::make_shared<std::vector<std::byte>>();
        bytes->reserve(pulled->size());
        for (const auto piece : pulled->pieces())
            bytes->insert(bytes->end(), piece.begin(), piece.end());
        // Asked again: while the value came, others may have taken the room.
        const bool done = values_.put(std::move(key), std::move(bytes));
        co_return reply(c, done ? kv::status::ok : kv::status::no_space);
    }

    task<rpc::outcome> del(rpc::call& c)
    {
        const std::string_view key = c.args().string(kv::max_key);
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        co_return reply(c, values_.erase(key) ? kv::status::ok : kv::status::not_found);
    }

    task<rpc::outcome> stat(rpc::call& c)
    {
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        const limits used = values_.used();
        for (const std::uint64_t number : {used.keys, used.bytes, values_.most().keys, values_.most().bytes})
            c.results().u64(number);
        co_return rpc::outcome::success;
    }

    store& values_;
    counter hits_;
    counter misses_;
};

class kv_module final : public rpc::program_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::number("max_keys", {1, 100'000'000}, 1'000'000, "Keys; a PUT of one more is refused"),
            setting::number("max_bytes", {0, std::uint64_t(1) << 40}, std::uint64_t(256) << 20,
                            "Bytes of keys and values together; a PUT beyond them is refused")};
    }
    std::vector<std::string> default_listeners() const override
    {
        return {"iwarp://127.0.0.1:20143", "tcp://127.0.0.1:20142"};
    }
    void configure(setting_values& values, module_table&) override
    {
        most_ = {values.number("max_keys"), values.number("max_bytes")};
    }
    void start(module_host& host) override
    {
        values_ = std::make_unique<store>(most_);
        // Here and not in expose(): that is called for each shard, and what several register under one name is added up.
        metrics_.push_back(
            host.metrics().add({"kv_keys", "Keys that are stored.", metric_type::gauge, "keys"},
                               [this](metric_sink& out) { out.value({}, double(values_->used().keys)); }));
        metrics_.push_back(host.metrics().add(
            {"kv_bytes", "Bytes of keys and values that are stored.", metric_type::gauge, "bytes"},
            [this](metric_sink& out) { out.value({}, double(values_->used().bytes)); }));
    }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard&) override
    {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<program>(*values_));
        return programs;
    }
    void stop() noexcept override
    {
        metrics_.clear();
        values_.reset();
    }

private:
    limits most_;
    std::unique_ptr<store> values_;
    metric_registrations metrics_; // read *values_
};

const module_descriptor descriptor = {
    .name = "kv",
    .version = "1.0",
    .summary = "values by key, in memory, gone when the program ends",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<kv_module>(); },
};

} // namespace

VERBENA_MODULE(program, descriptor);
