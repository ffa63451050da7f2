// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/settings.hpp>
#include <verbena/core/suggestion.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace verbena {

config_error::config_error(const setting_place& place, const std::string& what)
    : std::runtime_error(place.text + what), has_place_(!place.text.empty())
{
}

std::string number_range::text() const
{
    return "a number from " + std::to_string(low) + " to " + std::to_string(high);
}

namespace {

setting made(std::string name, setting_kind kind, std::string help)
{
    setting s;
    s.name = std::move(name);
    s.kind = kind;
    s.help = std::move(help);
    return s;
}

} // namespace

setting setting::flag(std::string name, bool otherwise, std::string help)
{
    setting s = made(std::move(name), setting_kind::flag, std::move(help));
    s.default_number = otherwise ? 1 : 0;
    return s;
}

setting setting::number(std::string name, number_range range, std::uint64_t otherwise, std::string help)
{
    setting s = made(std::move(name), setting_kind::number, std::move(help));
    s.range = range;
    s.default_number = otherwise;
    return s;
}

setting setting::text(std::string name, std::string otherwise, std::string help)
{
    setting s = made(std::move(name), setting_kind::text, std::move(help));
    s.default_text = std::move(otherwise);
    return s;
}

setting setting::word(std::string name, std::vector<std::string> words, std::string otherwise,
                      std::string help)
{
    setting s = made(std::move(name), setting_kind::word, std::move(help));
    s.words = std::move(words);
    s.default_text = std::move(otherwise);
    return s;
}

setting setting::list(std::string name, std::string help)
{
    return made(std::move(name), setting_kind::list, std::move(help));
}

setting setting::table(std::string name, std::vector<setting> inner, std::string help)
{
    setting s = made(std::move(name), setting_kind::table, std::move(help));
    s.inner = std::move(inner);
    return s;
}

setting setting::tables(std::string name, std::vector<setting> inner, std::string help)
{
    setting s = made(std::move(name), setting_kind::tables, std::move(help));
    s.inner = std::move(inner);
    return s;
}

setting&& setting::optional(std::string without) &&
{
    is_optional = true;
    told = std::move(without);
    return std::move(*this);
}

setting&& setting::form(std::string text) &&
{
    value_form = std::move(text);
    return std::move(*this);
}

setting&& setting::main() &&
{
    is_main = true;
    return std::move(*this);
}

setting&& setting::open() &&
{
    is_open = true;
    return std::move(*this);
}

setting&& setting::from_word(shorthand parse) &&
{
    parse_word = parse;
    return std::move(*this);
}

void setting_values::set(std::string name, value v)
{
    values_.insert_or_assign(std::move(name), std::move(v));
}

void setting_values::set_path(std::string_view path, value v)
{
    const std::size_t dot = path.find('.');
    const std::string name(path.substr(0, dot));
    if (dot == std::string_view::npos) {
        set(name, std::move(v));
        return;
    }
    if (find(name) == nullptr) {
        value table{value::tables{setting_values()}};
        table.is_table = true;
        set(name, std::move(table));
    }
    auto* tables = std::get_if<value::tables>(&find(name)->data);
    if (tables == nullptr || tables->size() != 1)
        throw std::logic_error("the setting " + name + " is no table, so that there is no " +
                               std::string(path));
    tables->front().set_path(path.substr(dot + 1), std::move(v));
}

void setting_values::append(const std::string& name, std::string text, setting_place place)
{
    value& v = values_.try_emplace(name, value{value::texts()}).first->second;
    auto* list = std::get_if<value::texts>(&v.data);
    if (list == nullptr)
        throw std::logic_error("the setting " + name + " is no list");
    list->push_back(std::move(text));
    v.element_places.push_back(std::move(place));
}

const setting_values::value* setting_values::find(std::string_view name) const noexcept
{
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
}

setting_values::value* setting_values::find(std::string_view name) noexcept
{
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
}

template<class T>
const T& setting_values::get(std::string_view name, const char* kind) const
{
    if (const value* v = find(name); v != nullptr) {
        if (const T* data = std::get_if<T>(&v->data))
            return *data;
    }
    throw std::logic_error("the setting " + std::string(name) + " was asked for as " + kind +
                           ", and is not declared so or has no value");
}

bool setting_values::flag(std::string_view name) const { return get<bool>(name, "a flag"); }
std::uint64_t setting_values::number(std::string_view name) const
{
    return static_cast<std::uint64_t>(get<std::int64_t>(name, "a number"));
}
const std::string& setting_values::text(std::string_view name) const
{
    return get<std::string>(name, "a text");
}
const std::vector<std::string>& setting_values::list(std::string_view name) const
{
    return get<value::texts>(name, "a list");
}
const std::vector<setting_values>& setting_values::tables(std::string_view name) const
{
    return get<value::tables>(name, "a list of tables");
}
const setting_values& setting_values::table(std::string_view name) const
{
    const auto& all = tables(name);
    if (all.size() != 1)
        throw std::logic_error("the setting " + std::string(name) + " is no single table");
    return all.front();
}

bool setting_values::written(std::string_view name) const
{
    const value* v = find(name);
    return v != nullptr && !v->is_default;
}

setting_place setting_values::place(std::string_view name) const
{
    const value* v = find(name);
    return v != nullptr ? v->place : setting_place();
}

setting_place setting_values::place(std::string_view name, std::size_t i) const
{
    const value* v = find(name);
    return v != nullptr && i < v->element_places.size() ? v->element_places[i] : setting_place();
}

namespace {

// "auto", "no" as people write them: "a", "b" or "c".
std::string choices(const std::vector<std::string>& words, bool quoted)
{
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i != 0)
            text += i + 1 == words.size() ? " or " : ", ";
        text += quoted ? '"' + words[i] + '"' : words[i];
    }
    return text;
}

std::string rule_of(const setting& s, const std::string& path, bool in_file)
{
    switch (s.kind) {
    case setting_kind::flag: return in_file ? "true or false" : "yes or no";
    case setting_kind::number: return s.range.text();
    case setting_kind::text: return "a string";
    case setting_kind::word: return in_file ? choices(s.words, true) : choices(s.words, false);
    case setting_kind::list: return "a list of strings";
    case setting_kind::table: return "a table";
    case setting_kind::tables: return "a list of tables, written [[" + path + s.name + "]]";
    }
    return {};
}

// One value on its way from what somebody wrote to what its setting takes.
class checked_value {
public:
    checked_value(const setting& s, setting_values::value& v, const std::string& path)
        : setting_(s), value_(v), path_(path)
    {
    }

    void check()
    {
        read_word();
        switch (setting_.kind) {
        case setting_kind::flag: want<bool>(); break;
        case setting_kind::number: check_number(); break;
        case setting_kind::text: check_text(want<std::string>()); break;
        case setting_kind::word: check_choice(); break;
        case setting_kind::list:
            for (const std::string& element : want<setting_values::value::texts>())
                check_text(element);
            break;
        case setting_kind::table:
        case setting_kind::tables: check_tables(); break;
        }
    }

private:
    [[noreturn]] void fail(const std::string& what, const setting_place& where) const
    {
        if (!value_.option.empty())
            throw config_error(setting_place{value_.option + ' '}, what);
        throw config_error(where, path_ + setting_.name + ' ' + what);
    }
    [[noreturn]] void wrong(const std::string& found = {}) const
    {
        fail("must be " + rule_of(setting_, path_, value_.option.empty()) +
                 (found.empty() ? std::string() : ", not " + found),
             value_.place);
    }
    // Whether a message says what was written. A word of the command line stands in it already.
    bool is_told() const { return value_.option.empty() && !is_secret(setting_.name); }
    template<class T>
    const T& want() const
    {
        const T* data = std::get_if<T>(&value_.data);
        if (data == nullptr)
            wrong();
        return *data;
    }
    void check_text(const std::string& text) const
    {
        if (text.find('\0') != std::string::npos)
            fail("holds a NUL character", value_.place);
    }
    void check_number() const
    {
        const std::int64_t n = want<std::int64_t>();
        if (n < 0 || !setting_.range.holds(static_cast<std::uint64_t>(n)))
            wrong(is_told() ? std::to_string(n) : std::string());
    }
    void check_choice() const
    {
        if (std::get_if<std::string>(&value_.data) == nullptr)
            fail("must be a string", value_.place);
        const std::string& word = std::get<std::string>(value_.data);
        check_text(word);
        if (std::ranges::find(setting_.words, word) != setting_.words.end())
            return;
        const std::string_view meant = nearest(word, {setting_.words.begin(), setting_.words.end()});
        fail("must be " + rule_of(setting_, path_, value_.option.empty()) +
                 (is_told() ? ", not \"" + word + '"' : std::string()) +
                 (meant.empty() ? std::string() : "; did you mean " + std::string(meant) + "?"),
             value_.place);
    }
    void check_tables()
    {
        // A list of nothing says not what it is a list of.
        if (const auto* texts = std::get_if<setting_values::value::texts>(&value_.data);
            texts != nullptr && texts->empty())
            value_.data = setting_values::value::tables();
        auto* all = std::get_if<setting_values::value::tables>(&value_.data);
        if (all == nullptr || value_.is_table != (setting_.kind == setting_kind::table))
            wrong();
        for (setting_values& inner : *all)
            verbena::check(setting_.inner, inner, path_ + setting_.name + '.', setting_.is_open);
    }
    // One word of a command line becomes what the setting takes; what does not fit stays a word, which check() refuses.
    void read_word()
    {
        const auto* w = std::get_if<setting_values::word>(&value_.data);
        if (w == nullptr)
            return;
        std::string text = w->text;
        switch (setting_.kind) {
        case setting_kind::flag:
            for (const char* yes : {"", "yes", "true", "1"}) {
                if (text == yes) {
                    value_.data = true;
                    return;
                }
            }
            for (const char* no : {"no", "false", "0"}) {
                if (text == no) {
                    value_.data = false;
                    return;
                }
            }
            break;
        case setting_kind::number: {
            std::int64_t n = 0;
            const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
            if (failed == std::errc() && end == text.data() + text.size())
                value_.data = n;
            break;
        }
        case setting_kind::text:
        case setting_kind::word: value_.data = std::move(text); break;
        case setting_kind::list: value_.data = setting_values::value::texts{std::move(text)}; break;
        case setting_kind::table:
        case setting_kind::tables: break;
        }
    }

    const setting& setting_;
    setting_values::value& value_;
    const std::string& path_;
};

// What a setting has when nobody wrote it; nothing if it has no value then.
std::optional<setting_values::value> default_of(const setting& s)
{
    setting_values::value v;
    v.is_default = true;
    switch (s.kind) {
    case setting_kind::flag: v.data = s.default_number != 0; break;
    case setting_kind::number: v.data = static_cast<std::int64_t>(s.default_number); break;
    case setting_kind::text:
    case setting_kind::word: v.data = s.default_text; break;
    case setting_kind::list: v.data = setting_values::value::texts(); break;
    case setting_kind::table: {
        setting_values inner;
        check(s.inner, inner, s.name + '.');
        v.data = setting_values::value::tables{std::move(inner)};
        v.is_table = true;
        break;
    }
    case setting_kind::tables: v.data = setting_values::value::tables(); break;
    }
    if (s.is_optional)
        return {};
    return v;
}

} // namespace

bool is_secret(std::string_view name) noexcept
{
    constexpr std::string_view secrets[] = {"password", "passwd", "passphrase", "secret", "token",
                                            "key",      "keytab", "credential", "psk",    "auth"};
    for (std::size_t at = 0; at <= name.size();) {
        const std::size_t end = std::min(name.find_first_of("_-.", at), name.size());
        std::string_view word = name.substr(at, end - at);
        if (word.ends_with('s'))
            word.remove_suffix(1);
        if (std::ranges::find(secrets, word) != std::end(secrets))
            return true;
        at = end + 1;
    }
    return false;
}

std::string without_secrets(std::string_view word)
{
    std::string out;
    for (std::size_t at = 0; at <= word.size();) {
        std::size_t end = at;
        while (end < word.size() && word[end] != ',')
            end += word[end] == '\\' ? 2 : 1;
        end = std::min(end, word.size());
        const std::string_view option = word.substr(at, end - at);
        const std::size_t equals = option.find('=');
        out += out.empty() && at == 0 ? "" : ",";
        if (equals != option.npos && is_secret(option.substr(0, equals)))
            out.append(option.substr(0, equals + 1)).append(not_shown);
        else
            out += option;
        at = end + 1;
    }
    return out;
}

void refuse_unknown(const std::vector<std::string_view>& declared, const setting_values& values,
                    const std::string& path)
{
    for (const auto& [name, v] : values.all()) {
        if (std::ranges::find(declared, name) != declared.end())
            continue;
        throw config_error(v.key_place, std::string("unknown ") +
                                            (v.option.empty() ? "key " + path : "option ") + name +
                                            did_you_mean(name, declared));
    }
}

void check(const std::vector<setting>& declared, setting_values& values, const std::string& path, bool open)
{
    if (!open) {
        std::vector<std::string_view> names;
        names.reserve(declared.size());
        for (const setting& s : declared)
            names.emplace_back(s.name);
        refuse_unknown(names, values, path);
    }
    for (const setting& s : declared) {
        if (setting_values::value* v = values.find(s.name); v != nullptr)
            checked_value(s, *v, path).check();
        else if (auto otherwise = default_of(s))
            values.set(s.name, std::move(*otherwise));
    }
}

} // namespace verbena
