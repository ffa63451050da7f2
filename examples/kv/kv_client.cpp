// SPDX-License-Identifier: Apache-2.0
// Calls the program kv, over TCP or as RPC-over-RDMA:
//
//   kv get URL KEY         writes the value to the standard output
//   kv put URL KEY         reads it from the standard input
//   kv del URL KEY
//   kv stat URL            URL: tcp://HOST:PORT, iwarp://HOST:PORT, rdma://HOST:PORT
//
// Exit status: 0 done, 1 not done, 2 wrong usage.
#include "protocol.hpp"

#include <verbena/clients/connect.hpp>
#include <verbena/core/task/scope.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

class usage_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class verb { get, put, del, stat };
struct command {
    verb what = verb::stat;
    std::string url;
    std::string key;
    std::vector<std::byte> value; // of a PUT
};

template<class T>
T or_throw(result<T> r, const std::string& what)
{
    if (!r)
        throw std::runtime_error(what + ": " + r.error().message());
    return std::move(*r);
}

// What is to be written; nothing of a PUT and a DELETE.
task<result<std::string>> ask(rpc::client_transport& server, const command& c)
{
    std::string text;
    switch (c.what) {
    case verb::get: {
        const kv::key_args args{c.key}; // named before co_await, for g++ 12
        const auto got = co_await kv::get(server, args);
        if (!got)
            co_return got.error();
        for (const auto piece : got->value.bytes().pieces())
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        break;
    }
    case verb::put: {
        auto value = co_await rpc::copy_payload(server, c.value);
        if (!value)
            co_return value.error();
        kv::put_args args{c.key, std::move(*value)};
        const auto done = co_await kv::put(server, std::move(args));
        if (!done)
            co_return done.error();
        break;
    }
    case verb::del: {
        const kv::key_args args{c.key};
        const auto done = co_await kv::del(server, args);
        if (!done)
            co_return done.error();
        break;
    }
    case verb::stat: {
        const auto s = co_await kv::stat(server);
        if (!s)
            co_return s.error();
        text = "keys " + std::to_string(s->keys) + "\nbytes " + std::to_string(s->bytes) + "\nmax_keys " +
               std::to_string(s->max_keys) + "\nmax_bytes " + std::to_string(s->max_bytes) + '\n';
        break;
    }
    }
    co_return text;
}

// Writes what was asked for. False, and says why, if the server did not do it; throws if it could not be asked.
task<bool> run(const command& c)
{
    auto question = [&c](rpc::client& server) { return ask(server, c); };
    const auto text = co_await rpc::with_client(c.url, std::move(question));
    if (text) {
        std::fwrite(text->data(), 1, text->size(), stdout);
        co_return std::fflush(stdout) == 0;
    }
    if (text.error() == std::errc::invalid_argument)
        throw usage_error(c.url + ": " + text.error().message());
    const kv::status status = rpc::error_as<kv::status>(text.error());
    if (status == kv::status::ok)
        throw std::runtime_error(c.url + ": " + text.error().message());
    const char* const cure =
        status == kv::status::no_space ? ": the server has all that max_keys or max_bytes allow"
        : status == kv::status::busy   ? ": the server has no memory at the moment, try again"
                                       : "";
    const std::string why(to_string(status));
    std::fprintf(stderr, "kv: %s: %s%s\n", c.key.c_str(), why.c_str(), cure);
    co_return false;
}

command parse(const std::vector<std::string>& words)
{
    command c;
    if (words.size() == 3 && words[0] == "get")
        c.what = verb::get;
    else if (words.size() == 3 && words[0] == "put")
        c.what = verb::put;
    else if (words.size() == 3 && words[0] == "del")
        c.what = verb::del;
    else if (words.size() == 2 && words[0] == "stat")
        c.what = verb::stat;
    else
        throw usage_error("write get URL KEY, put URL KEY, del URL KEY or stat URL");
    c.url = words[1];
    c.key = words.size() == 3 ? words[2] : "";
    if (c.key.size() > kv::key::limit)
        throw usage_error("a key has at most 256 bytes");
    if (c.what != verb::put)
        return c;
    c.value.resize(kv::data::limit + 1);
    c.value.resize(std::fread(c.value.data(), 1, c.value.size(), stdin));
    if (c.value.size() > kv::data::limit)
        throw usage_error("a value has at most 1 MiB");
    return c;
}

} // namespace

int main(int argc, char** argv)
{
    try {
        const command c = parse({argv + 1, argv + argc});
        auto shard = or_throw(reactor::create(), "reactor");
        return run_until_complete(*shard, run(c)) ? 0 : 1;
    } catch (const usage_error& e) {
        std::fprintf(stderr, "kv: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "kv: %s\n", e.what());
        return 1;
    }
}
