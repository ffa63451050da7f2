// SPDX-License-Identifier: Apache-2.0
// Calls the program kv, over TCP or as RPC-over-RDMA:
//
//   kv get URL KEY         writes the value to the standard output
//   kv put URL KEY         reads it from the standard input
//   kv del URL KEY
//   kv stat URL            URL: tcp://HOST:PORT or iwarp://HOST:PORT
//
// Exit status: 0 done, 1 not done, 2 wrong usage.
#include "protocol.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/transports/iwarp.hpp>

#include <cstdio>
#include <memory>
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

// Both kinds are the same to whoever calls. `rdma` makes the connections of iwarp://.
std::unique_ptr<rpc::client_transport> make_client(reactor& shard, buffer_pool& buffers, verbs::context& rdma,
                                                   const std::string& url)
{
    rpc::client_options patience;
    patience.hard = false; // a call fails when the server stays silent
    patience.timeout = std::chrono::seconds(10);
    const auto colon = url.find("://");
    const std::string scheme = url.substr(0, colon);
    if (colon == std::string::npos || (scheme != "tcp" && scheme != "iwarp"))
        throw usage_error(url + ": write tcp://HOST:PORT or iwarp://HOST:PORT");
    const std::string address = or_throw(net::resolve(url.substr(colon + 3)), url).front().to_string();
    if (scheme == "tcp") {
        rpc::stream_client_options options;
        options.client = patience;
        return or_throw(rpc::make_stream_client(shard, buffers, address, options), url);
    }
    rpcrdma::requester_options options;
    options.client = patience;
    return rpcrdma::make_requester(rdma, buffers, address, options);
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
task<bool> run(rpc::client_transport& server, const command& c)
{
    const auto text = co_await ask(server, c);
    co_await server.close();
    if (text) {
        std::fwrite(text->data(), 1, text->size(), stdout);
        co_return std::fflush(stdout) == 0;
    }
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
        memory_budget budget(std::size_t(16) << 20); // bytes, of all buffers together
        buffer_pool buffers(budget, shard.get());
        const auto rdma = iwarp::make_context(*shard);
        const auto server = make_client(*shard, buffers, *rdma, c.url);
        return run_until_complete(*shard, run(*server, c)) ? 0 : 1;
    } catch (const usage_error& e) {
        std::fprintf(stderr, "kv: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "kv: %s\n", e.what());
        return 1;
    }
}
