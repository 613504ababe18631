"""What demonstration, chaos, rollouts, benches and tests share: tables, load, watching, counting, checks, workspace,
supervision. It never imports one of them."""
