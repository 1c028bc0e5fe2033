// Asks the two libraries that Velero has read cron expressions with, and writes what they say as JSON: the golden vectors of
// crates/core/src/cron (see README.md).
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	netresearch "github.com/netresearch/go-cron"
	robfig "github.com/robfig/cron/v3"
)

// How many times in a row are asked for.
const steps = 6

type schedule interface{ Next(time.Time) time.Time }

// What is asked, and what each library says: the times (seconds since 1970), or nothing if it refuses the expression.
type vector struct {
	Spec        string   `json:"spec"`
	From        int64    `json:"from"`
	Robfig      *[]int64 `json:"robfig"`
	Netresearch *[]int64 `json:"netresearch"`
}

// Around midnights that do not exist, both can go round in circles for ever. What then comes is of no use to anybody.
func next(parse func(string) (schedule, error), spec string, from int64) (times *[]int64, ends bool) {
	done := make(chan *[]int64, 1)
	go func() { done <- asked(parse, spec, from) }()
	select {
	case times := <-done:
		return times, true
	case <-time.After(time.Second):
		return nil, false
	}
}

// Velero recovers from the panics of its parser, and takes them for errors.
func asked(parse func(string) (schedule, error), spec string, from int64) (times *[]int64) {
	defer func() {
		if recover() != nil {
			times = nil
		}
	}()
	parsed, err := parse(spec)
	if err != nil {
		return nil
	}
	found, at := []int64{}, time.Unix(from, 0)
	for range steps {
		if at = parsed.Next(at); at.IsZero() {
			break
		}
		found = append(found, at.Unix())
	}
	return &found
}

var specs = []string{
	"* * * * *", "*/15 * * * *", "0 * * * *", "30 4 * * *", "0 0 1 * *", "0 0 29 2 *", "0 0 30 2 *", "0 0 31 * *", "5,10,55 1,13 * * *",
	"0 0 * * 0", "0 0 * * 7", "0 0 * * 1-7", "0 0 * * 0-7", "0 0 * * 5-7", "0 0 * * SUN", "0 0 * * sun,WED", "0 0 * * MON-FRI", "0 0 * * FRI-MON",
	"0 0 * * sat-sun", "0 0 1 JAN *", "0 0 1 jan-mar *", "0 0 1 NOV-FEB *", "0 0 1 1,FEB,3 *", "0 22-2 * * *", "0 22-2/2 * * *", "50-10 * * * *",
	"0 0 28-3 * *", "0 0 */2 * 1", "0 0 13 * 5", "0 0 13 * *", "0 0 * * 5", "0 0 1,15 * MON", "0 0 */1 * 1", "0 0 ?/1 * 1", "0 0 1-31 * 1", "0 0 1 * */2",
	"0 0 1 * */1", "0 0 ? * 1", "? ? ? ? ?", "0 0 1 * ?", "5/15 * * * *", "+5 * * * *", "05 007 * * *", "*/70 * * * *", "*/59 * * * *", "*/60 * * * *",
	"*/61 * * * *", "10-20/5 * * * *", "10-20/10 * * * *", "10-20/11 * * * *", "10-20/12 * * * *", "10-20/100 * * * *", "10/50 * * * *", "10/49 * * * *",
	"*/1 * * * *", "*/0 * * * *", "*-5 * * * *", "*-5/2 * * * *", "5-* * * * *", "5-5 * * * *", "20-10 * * * *", "60 * * * *", "* 24 * * *", "0 0 0 * *",
	"0 0 32 * *", "0 0 * 0 *", "0 0 * 13 *", "0 0 * * 8", "0 0 1-32 * *", ", * * * *", "1,,2 * * * *", ",5, * * * *", "1-2-3 * * * *", "1/2/3 * * * *",
	"-5 * * * *", "5- * * * *", "/5 * * * *", "5/ * * * *", "a * * * *", "1.5 * * * *", "0x10 * * * *", "1_0 * * * *", "99999999999999999999 * * * *",
	"* * * *", "* * * * * *", "0 * * * * 2030", "", " ", "   0   5 * * *  ", "0\t5\t*\t*\t*", "0 0 L * *", "0 0 LW * *", "0 0 1W * *", "0 0 * * 5#2",
	"0 0 * * 5L", "H * * * *", "0 H * * *", "0 0 * JANUARY *", "0 0 * * MONDAY", "0 0 * * Mo",
	"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@Daily", "@reboot", "@triggered", "@manual", "@none", "@", " @daily",
	"@daily ", "@every 1h30m", "@every 1.5h", "@every 90s", "@every 1s", "@every 500ms", "@every 1500ms", "@every 0", "@every 0s", "@every -5m", "@every 1d",
	"@every", "@every ", "@every  5m", "@every 5m ", "@every 24h0m0.9s",
	"CRON_TZ=Europe/Paris 0 3 * * *", "TZ=Europe/Paris 30 2 * * *", "CRON_TZ=Europe/Paris 0 2 * * *", "CRON_TZ=Europe/Paris */30 1-3 * * *",
	"CRON_TZ=Europe/Paris 15 2 * * SUN", "CRON_TZ=Europe/Paris @daily", "CRON_TZ=Europe/Paris @every 6h", "TZ=America/New_York 30 1 * * *",
	"TZ=America/New_York 0 2 * * *", "TZ=America/New_York 5 2,3 * * *", "TZ=America/Sao_Paulo 0 0 * * *", "TZ=America/Sao_Paulo 30 0 4 11 *",
	"TZ=America/Sao_Paulo 0 0 * * SUN", "TZ=America/Sao_Paulo 0 12 * * SUN", "TZ=Australia/Lord_Howe 15 2 * * *", "TZ=Australia/Lord_Howe 45 1 * * *",
	"TZ=Asia/Kathmandu 0 0 * * *", "TZ=Asia/Kolkata 15 9 1 * *", "TZ=Africa/Monrovia 0 0 * * *", "TZ=Pacific/Apia 0 0 30 12 *", "TZ=Europe/London 30 1 * * *",
	"TZ=Europe/London 0 1 * * *", "TZ=UTC 0 0 * * *", "TZ= 0 0 * * *", "TZ=Local 0 0 * * *", "TZ=Etc/GMT+5 0 0 * * *", "TZ=EST 0 0 * * *",
	"TZ=US/Eastern 0 0 * * *", "TZ=europe/paris 0 0 * * *", "TZ=Mars/Olympus 0 0 * * *", "TZ=../etc/passwd 0 0 * * *", "TZ=/etc/localtime 0 0 * * *",
	"TZ=\"Europe/Paris\" 0 0 * * *", "TZ='Europe/Paris' 0 0 * * *", "TZ=Europe/Paris", "CRON_TZ=Europe/Paris ", "TZ=Europe/Paris  0  5 * * *",
	"tz=Europe/Paris 0 0 * * *", "TZ=Europe/Paris\t0 0 * * *", " TZ=Europe/Paris 0 0 * * *", "TZ=CRON_TZ=UTC 0 0 * * *",
}

// From when: ordinary days, ends of months and years, and shortly before clocks are changed.
var froms = []string{
	"2026-01-01T00:00:00Z", "2026-03-28T20:17:42Z", "2026-10-24T20:00:00Z", "2026-03-08T04:30:00Z", "2026-11-01T03:30:00Z", "2018-11-03T20:00:00Z",
	"2018-02-17T20:00:00Z", "2026-10-03T12:00:00Z", "2026-04-04T12:00:00Z", "2027-12-31T23:59:59Z", "2028-02-28T23:59:59Z", "2011-12-29T12:00:00Z",
}

var zones = []string{"", "", "TZ=Europe/Paris ", "TZ=America/New_York ", "CRON_TZ=America/Sao_Paulo ", "TZ=Australia/Lord_Howe ", "TZ=Asia/Kolkata "}

// Expressions that nobody thought of: the same ones each time.
func made(random *rand.Rand) string {
	field := func(low, high int) string {
		one := func() int { return low + random.Intn(high-low+1) }
		piece := func() string {
			switch random.Intn(8) {
			case 0, 1, 2:
				return "*"
			case 3:
				return fmt.Sprintf("*/%d", 1+random.Intn(high))
			case 4:
				return fmt.Sprintf("%d-%d", one(), one())
			case 5:
				return fmt.Sprintf("%d-%d/%d", one(), one(), 1+random.Intn(6))
			case 6:
				return fmt.Sprintf("%d/%d", one(), 1+random.Intn(high))
			default:
				return fmt.Sprint(one())
			}
		}
		pieces := []string{piece()}
		for random.Intn(4) == 0 {
			pieces = append(pieces, piece())
		}
		return strings.Join(pieces, ",")
	}
	spec := []string{field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)}
	// Most of it is never due otherwise.
	for at := 2; at < 5; at++ {
		if random.Intn(2) == 0 {
			spec[at] = "*"
		}
	}
	return zones[random.Intn(len(zones))] + strings.Join(spec, " ")
}

func main() {
	time.Local = time.UTC
	var vectors []vector
	ask := func(spec string, from int64) {
		first, ends := next(func(spec string) (schedule, error) { return robfig.ParseStandard(spec) }, spec, from)
		second, too := next(func(spec string) (schedule, error) { return netresearch.ParseStandard(spec) }, spec, from)
		if ends && too {
			vectors = append(vectors, vector{Spec: spec, From: from, Robfig: first, Netresearch: second})
		} else {
			fmt.Fprintf(os.Stderr, "%q from %d never ends (robfig %v, netresearch %v)\n", spec, from, !ends, !too)
		}
	}
	unix := func(text string) int64 {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			panic(err)
		}
		return at.Unix()
	}
	for _, spec := range specs {
		all := froms[:1]
		// Clocks are changed only where there is a zone, and days of months matter where there is a day.
		if strings.Contains(spec, "TZ=") {
			all = froms
		} else if fields := strings.Fields(spec); len(fields) == 5 && (fields[2] != "*" || fields[3] != "*" || fields[4] != "*") {
			all = []string{froms[0], froms[9], froms[10]}
		}
		for _, from := range all {
			ask(spec, unix(from))
		}
	}
	random := rand.New(rand.NewSource(1))
	for range 500 {
		ask(made(random), unix(froms[random.Intn(len(froms))]))
	}
	// One a line, so that a change can be read.
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, vector := range vectors {
		if err := out.Encode(vector); err != nil {
			panic(err)
		}
	}
}
