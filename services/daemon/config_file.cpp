// SPDX-License-Identifier: Apache-2.0
#include "config_file.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <toml++/toml.h>

namespace verbena::daemon {

namespace {

std::string place_of(std::string_view file, const toml::source_region& where)
{
    std::ostringstream text;
    text << file << ':' << where.begin.line << ':' << where.begin.column << ": ";
    return text.str();
}

[[noreturn]] void fail_at(std::string_view file, const toml::source_region& where, const std::string& why)
{
    throw config_error(place_of(file, where) + why);
}

// Takes the keys of one table, and at the end complains of one that nobody took.
class table_reader {
public:
    table_reader(const toml::table& table, std::string_view file, std::string path)
        : table_(table), file_(file), path_(std::move(path))
    {
    }

    void read(std::string_view key, std::string& out)
    {
        if (const toml::node* node = take(key))
            out = text(*node, key);
    }
    void read(std::string_view key, bool& out)
    {
        if (const toml::node* node = take(key)) {
            if (!node->is_boolean())
                wrong_type(*node, key, "true or false");
            out = node->as_boolean()->get();
        }
    }
    template<std::unsigned_integral T>
    void read(std::string_view key, T& out, const number_range& range)
    {
        if (const toml::node* node = take(key)) {
            if (!node->is_integer() || node->as_integer()->get() < 0 ||
                !range.holds(std::uint64_t(node->as_integer()->get())))
                wrong_type(*node, key, range.text());
            out = T(node->as_integer()->get());
        }
    }
    /// `places`: where each of them stands, "FILE:LINE:COLUMN: ".
    void read(std::string_view key, std::vector<std::string>& out, std::vector<std::string>* places = nullptr)
    {
        const toml::node* node = take(key);
        if (node == nullptr)
            return;
        if (!node->is_array())
            wrong_type(*node, key, "a list of strings");
        out.clear();
        for (const toml::node& element : *node->as_array()) {
            out.push_back(text(element, key));
            if (places != nullptr)
                places->push_back(place_of(file_, element.source()));
        }
    }
    /// Where the table begins, likewise.
    std::string place() const { return place_of(file_, table_.source()); }
    /// Where the value of a key that is there stands.
    std::string place(std::string_view key) const
    {
        const toml::node* node = table_.get(key);
        return node != nullptr ? place_of(file_, node->source()) : std::string();
    }
    // A string that `parse` turns into a value, or refuses with what it must be.
    template<class F>
    void read_word(std::string_view key, F parse)
    {
        if (const toml::node* node = take(key)) {
            const std::string word = text(*node, key);
            if (const char* rule = parse(word); rule != nullptr)
                fail_at(file_, node->source(),
                        path_ + std::string(key) + " must be " + rule + ", not \"" + word + '"');
        }
    }
    template<class F>
    void read_table(std::string_view key, F read_it)
    {
        if (const toml::node* node = take(key)) {
            if (!node->is_table())
                wrong_type(*node, key, "a table");
            table_reader inner(*node->as_table(), file_, path_ + std::string(key) + '.');
            read_it(inner);
            inner.finish();
        }
    }
    template<class F>
    void read_tables(std::string_view key, F read_it)
    {
        const toml::node* node = take(key);
        if (node == nullptr)
            return;
        const std::string form = "a list of tables, written [[" + path_ + std::string(key) + "]]";
        if (!node->is_array())
            wrong_type(*node, key, form);
        for (const toml::node& element : *node->as_array()) {
            if (!element.is_table())
                wrong_type(element, key, form);
            table_reader inner(*element.as_table(), file_, path_ + std::string(key) + '.');
            read_it(inner);
            inner.finish();
        }
    }

    void finish() const
    {
        for (const auto& [key, node] : table_) {
            if (std::ranges::find(known_, key.str()) == known_.end())
                fail_at(file_, key.source(),
                        "unknown key " + path_ + std::string(key.str()) + did_you_mean(key.str(), known_));
        }
    }

private:
    const toml::node* take(std::string_view key)
    {
        known_.push_back(key);
        return table_.get(key);
    }
    std::string text(const toml::node& node, std::string_view key) const
    {
        if (!node.is_string())
            wrong_type(node, key, "a string");
        const std::string& value = node.as_string()->get();
        if (value.find('\0') != std::string::npos)
            fail_at(file_, node.source(), path_ + std::string(key) + " holds a NUL character");
        return value;
    }
    [[noreturn]] void wrong_type(const toml::node& node, std::string_view key,
                                 const std::string& wanted) const
    {
        fail_at(file_, node.source(), path_ + std::string(key) + " must be " + wanted);
    }

    const toml::table& table_;
    std::string_view file_;
    std::string path_;
    std::vector<std::string_view> known_;
};

void read_daemon(table_reader& t, config& c)
{
    t.read("state", c.state);
    unsigned shards = 0; // not written
    t.read("shards", shards, ranges::shards);
    if (shards != 0)
        c.shards = shards;
    t.read_word("policy", [&](const std::string& word) -> const char* {
        const auto policy = parse_wait_policy(word);
        if (!policy)
            return "\"busy\", \"adaptive\" or \"event\"";
        c.policy = *policy;
        return nullptr;
    });
    t.read("spin_microseconds", c.spin_microseconds, ranges::spin_microseconds);
    t.read("pin", c.pin);
    t.read("memory_mib", c.memory_mib, ranges::memory_mib);
    t.read("blocking_threads", c.blocking_threads, ranges::blocking_threads);
    t.read("drain_seconds", c.drain_seconds, ranges::drain_seconds);
    t.read_word("log_level", [&](const std::string& word) -> const char* {
        return parse_log_level(word, c.log_level)
                   ? nullptr
                   : "\"trace\", \"debug\", \"info\", \"warning\", \"error\" or \"off\"";
    });
}

void read_memory(table_reader& t, config& c)
{
    t.read_word("huge_pages", [&](const std::string& word) -> const char* {
        if (word != "auto" && word != "no")
            return "\"auto\" or \"no\"";
        c.huge_pages = word == "no" ? huge_pages::no : huge_pages::automatic;
        return nullptr;
    });
}

void read_export(table_reader& t, config& c)
{
    export_config e;
    e.place.text = t.place();
    t.read("directory", e.directory);
    t.read("pseudo", e.pseudo);
    t.read("backend", e.backend);
    t.read("clients", e.clients);
    t.read("transports", e.transports);
    t.read("read_only", e.read_only);
    t.read("root_squash", e.root_squash);
    t.read("all_squash", e.all_squash);
    t.read("anonuid", e.anonuid, ranges::id);
    t.read("anongid", e.anongid, ranges::id);
    t.read("secure", e.secure);
    t.read("crossmnt", e.crossmnt);
    t.read("async", e.async);
    t.read("handles", e.handles);
    c.exports.push_back(std::move(e));
}

void read_nfs(table_reader& t, config& c)
{
    t.read("listen", c.listen, &c.listen_places);
    if (!t.place("listen").empty() && c.listen.empty())
        throw config_error(t.place("listen") +
                           "listen is empty: name an address, or leave it out for the defaults");
    t.read_word("rpcbind", [&](const std::string& word) -> const char* {
        if (word != "auto" && word != "no")
            return "\"auto\" or \"no\"";
        c.rpcbind = word == "no" ? rpcbind_mode::no : rpcbind_mode::automatic;
        return nullptr;
    });
    t.read("allow_public", c.allow_public);
    t.read("rdma_read_seconds", c.rdma_read_seconds, ranges::rdma_read_seconds);
    t.read("iwarp_crc", c.iwarp_crc);
    t.read_tables("export", [&](table_reader& inner) { read_export(inner, c); });
}

toml::array strings(const std::vector<std::string>& from)
{
    toml::array list;
    for (const std::string& s : from)
        list.push_back(s);
    return list;
}

toml::table export_table(const export_config& e)
{
    toml::table t;
    if (!e.directory.empty())
        t.insert("directory", e.directory);
    if (!e.pseudo.empty())
        t.insert("pseudo", e.pseudo);
    t.insert("backend", e.backend);
    t.insert("clients", strings(e.clients));
    t.insert("transports", strings(e.transports));
    t.insert("read_only", e.read_only);
    t.insert("root_squash", e.root_squash);
    t.insert("all_squash", e.all_squash);
    t.insert("anonuid", std::int64_t(e.anonuid));
    t.insert("anongid", std::int64_t(e.anongid));
    t.insert("secure", e.secure);
    t.insert("crossmnt", e.crossmnt);
    t.insert("async", e.async);
    t.insert("handles", e.handles);
    return t;
}

} // namespace

config parse_config(std::string_view text, std::string_view name)
{
    if (text.size() > max_config_size)
        throw config_error(std::string(name) + ": larger than 4 MiB");
    try {
        const toml::table root = toml::parse(text);
        config c;
        table_reader reader(root, name, "");
        reader.read_table("daemon", [&](table_reader& t) { read_daemon(t, c); });
        reader.read_table("memory", [&](table_reader& t) { read_memory(t, c); });
        reader.read_table("metrics", [&](table_reader& t) {
            t.read("listen", c.metrics);
            c.metrics_place = t.place("listen");
        });
        reader.read_table("nfs", [&](table_reader& t) { read_nfs(t, c); });
        reader.finish();
        return c;
    } catch (const toml::parse_error& e) {
        fail_at(name, e.source(), std::string(e.description()));
    }
}

config load_config(const std::string& path)
{
    std::ifstream in(path, std::ios::binary);
    if (!in)
        throw config_error(path + ": can't be opened: " + std::generic_category().message(errno));
    std::string text(max_config_size + 1, '\0');
    in.read(text.data(), std::streamsize(text.size()));
    if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
        throw config_error(path + ": is a directory: name the configuration file in it");
    if (in.bad())
        throw config_error(path + ": can't be read");
    text.resize(std::size_t(in.gcount()));
    return parse_config(text, path);
}

std::string to_toml(const config& c)
{
    toml::table daemon;
    if (!c.state.empty())
        daemon.insert("state", c.state);
    if (c.shards)
        daemon.insert("shards", std::int64_t(*c.shards));
    daemon.insert("policy", to_string(c.policy));
    daemon.insert("spin_microseconds", std::int64_t(c.spin_microseconds));
    daemon.insert("pin", c.pin);
    daemon.insert("memory_mib", std::int64_t(c.memory_mib));
    daemon.insert("blocking_threads", std::int64_t(c.blocking_threads));
    daemon.insert("drain_seconds", std::int64_t(c.drain_seconds));
    daemon.insert("log_level", to_string(c.log_level));

    toml::table nfs;
    nfs.insert("listen", strings(c.listen));
    nfs.insert("rpcbind", c.rpcbind == rpcbind_mode::no ? "no" : "auto");
    nfs.insert("allow_public", c.allow_public);
    nfs.insert("rdma_read_seconds", std::int64_t(c.rdma_read_seconds));
    nfs.insert("iwarp_crc", c.iwarp_crc);
    toml::array exports;
    for (const export_config& e : c.exports)
        exports.push_back(export_table(e));
    nfs.insert("export", std::move(exports));

    toml::table root;
    root.insert("daemon", std::move(daemon));
    root.insert("memory", toml::table{{"huge_pages", c.huge_pages == huge_pages::no ? "no" : "auto"}});
    root.insert("metrics", toml::table{{"listen", c.metrics}});
    root.insert("nfs", std::move(nfs));
    std::ostringstream out;
    out << toml::default_formatter(root) << '\n';
    return out.str();
}

} // namespace verbena::daemon
